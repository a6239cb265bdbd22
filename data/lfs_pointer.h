// A repository that was cloned without Git LFS has small text files in the place of large ones.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/error.h"

namespace trireme {

/// Throws ExitCode::data if a file that begins with `head` is such a text.
inline void refuse_lfs_pointer(std::string_view head, const std::filesystem::path& path) {
  if (head.starts_with("version https://git-lfs.github.com/spec/"))
    fail(ExitCode::data, "data",
         "{} is a pointer of Git LFS, which stands for the file; expected the file itself; fetch it: git lfs pull",
         path.string());
}

}  // namespace trireme
