// What may be found in the place of a file: the small text that Git LFS leaves for a large file in a repository that was
// cloned without it, and the page that a server sends when a download needs a login, or has failed.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace trireme {

/// `head`: the first bytes of a file.
inline bool is_lfs_pointer(std::string_view head) {
  return head.starts_with("version https://git-lfs.github.com/spec/") &&
         head.substr(0, 1024).find("\noid ") != std::string_view::npos;
}

/// `head`: the first bytes of a file. True for an HTML document.
inline bool is_web_page(std::string_view head) {
  constexpr std::array<std::string_view, 2> beginnings = {"<!doctype html", "<html"};
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const auto equal = [](char read, char small) {
    return read == small || (read >= 'A' && read <= 'Z' && (read | 32) == small);
  };
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view begin) {
    return head.size() >= begin.size() && std::equal(begin.begin(), begin.end(), head.begin(),
                                                     [&](char small, char read) { return equal(read, small); });
  });
}

/// Throws ExitCode::data if a file that begins with `head` is a pointer of Git LFS.
inline void refuse_lfs_pointer(std::string_view head, const std::filesystem::path& path) {
  if (is_lfs_pointer(head))
    fail(ExitCode::data, "data",
         "{} is a pointer of Git LFS, which stands for the file; expected the file itself; fetch it: git lfs pull",
         path.string());
}

/// Throws ExitCode::data if a file that begins with `head` is such a pointer or a web page: for all files but texts.
inline void refuse_stand_in(std::string_view head, const std::filesystem::path& path) {
  refuse_lfs_pointer(head, path);
  if (is_web_page(head))
    fail(ExitCode::data, "data",
         "{} is a web page (HTML), perhaps what a server sent in the place of the file; expected the file itself; "
         "download it once more",
         path.string());
}

}  // namespace trireme
