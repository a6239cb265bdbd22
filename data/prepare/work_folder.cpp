#include "data/prepare/work_folder.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/io.h"
#include "data/bin_tokens.h"
#include "data/prepare/prepare.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

bool only_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

/// BEGIN, a number and END, such as tokens_00000.tokens.
bool is_numbered(std::string_view name, std::string_view begin, std::string_view end) {
  if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end)) return false;
  return only_of(name.substr(begin.size(), name.size() - begin.size() - end.size()), "0123456789");
}

}  // namespace

bool is_prepare_file(std::string_view name) {
  constexpr std::string_view temporary = ".tmp.";
  const std::size_t end = name.find(temporary);
  if (end != std::string_view::npos) {
    if (!only_of(name.substr(end + temporary.size()), "0123456789.")) return false;
    name = name.substr(0, end);
  }
  constexpr std::array plain = {prepare_lock_name, prepare_state_name, shard_tokenizer_name, seen_documents_name};
  if (std::find(plain.begin(), plain.end(), name) != plain.end()) return true;
  if (is_numbered(name, "tokens_", shard_extension) || is_numbered(name, "documents_", ".part")) return true;
  for (const std::string part : {"train", "val"})  // data/bin_tokens.h
    if (name == part + std::string(bin_extension) || is_numbered(name, part + "_", bin_extension)) return true;
  return false;
}

void require_own_folder(const fs::path& folder) {
  const std::vector<std::string> names = list_folder(folder);
  if (names.empty()) return;
  const auto foreign = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    std::error_code unknown;
    return !is_prepare_file(name) || !fs::is_regular_file(fs::symlink_status(folder / name, unknown));
  });
  if (foreign != names.end())
    fail(ExitCode::locked, "prepare_data",
         "{} is where this job would work, and {} in it is not of prepare_data; expected no such folder, or what a "
         "stopped job has left; move it away, or choose another --out",
         folder.string(), *foreign);
  if (std::find(names.begin(), names.end(), prepare_lock_name) == names.end())
    fail(ExitCode::locked, "prepare_data",
         "{} is where this job would work, and it has files, but no {} of a stopped job; expected no such folder; move "
         "it away, or choose another --out",
         folder.string(), prepare_lock_name);
}

void remove_job(const fs::path& folder) {
  for (const std::string& name : list_folder(folder))
    if (is_prepare_file(name)) remove_file(folder / name);
  if (list_folder(folder).empty()) remove_folder(folder);
}

}  // namespace trireme
