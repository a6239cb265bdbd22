#include "parallel/checkpoint/chunks.h"

#include <algorithm>
#include <cstring>

#include "core/hash.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Returns `path` if the file exists. A missing file is damage (ExitCode::data), not a file system error.
fs::path require_file(const fs::path& path) {
  if (is_there(path)) return path;
  require_still_there(path.parent_path());
  fail(ExitCode::data, "checkpoint", "{} is missing; the checkpoint is not complete; resume from another one",
       path.string());
}

}  // namespace

void require_still_there(const fs::path& folder) {
  if (is_there(folder)) return;
  fail(ExitCode::data, "checkpoint",
       "{} is no longer there; expected it to stay while it is read; a run with --keep may have removed it: take a "
       "newer one",
       folder.string());
}

void require_not_removed(const fs::path& folder) {
  if (is_there(folder)) return;
  fail(ExitCode::io, "checkpoint",
       "{} was removed or moved while it was written; expected the run's folder to stay; see who removes it",
       folder.string());
}

std::vector<std::uint64_t> checksums(std::span<const std::byte> content) {
  std::vector<std::uint64_t> sums;
  for (std::size_t at = 0; at < content.size(); at += chunk_bytes)
    sums.push_back(hash_bytes(content.subspan(at, std::min<std::size_t>(chunk_bytes, content.size() - at))));
  return sums;
}

ChunkReader::ChunkReader(const fs::path& folder, const StoredFile& file)
    : file_(file), path_(folder / file.name), loaded_(file.chunks.size()) {
  open();
}

void ChunkReader::open() {
  input_.emplace(require_file(path_));
  if (input_->size() != file_.bytes)
    fail(ExitCode::data, "checkpoint", "{} has {} bytes; expected {}; it was {} at byte {}; resume from another one",
         path_.string(), input_->size(), file_.bytes, input_->size() < file_.bytes ? "cut short" : "extended",
         std::min(input_->size(), file_.bytes));
}

void ChunkReader::load(std::uint64_t chunk) {
  if (chunk == loaded_) return;
  const std::uint64_t begin = chunk * chunk_bytes, end = std::min(begin + chunk_bytes, file_.bytes);
  loaded_ = file_.chunks.size();
  chunk_.resize(static_cast<std::size_t>(end - begin));
  if (!input_) open();
  input_->read_at(begin, chunk_);
  bytes_read_ += end - begin;
  const std::uint64_t found = hash_bytes(chunk_), expected = file_.chunks[static_cast<std::size_t>(chunk)];
  if (found != expected)
    fail(ExitCode::data, "checkpoint",
         "{}: chunk {}, bytes {} to {}, has the checksum {:016x}; expected {:016x}; the file is damaged; resume from "
         "another checkpoint",
         path_.string(), chunk, begin, end, found, expected);
  loaded_ = chunk;
}

void ChunkReader::read(std::uint64_t offset, std::span<std::byte> into) {
  require(offset + into.size() <= file_.bytes, "checkpoint", "{} has {} bytes, asked for {} to {}", path_.string(),
          file_.bytes, offset, offset + into.size());
  while (!into.empty()) {
    load(offset / chunk_bytes);
    const auto at = static_cast<std::size_t>(offset % chunk_bytes);
    const std::size_t count = std::min(into.size(), chunk_.size() - at);
    std::memcpy(into.data(), chunk_.data() + at, count);
    offset += count;
    into = into.subspan(count);
  }
}

void ChunkReader::verify_all(const std::function<void()>& verified) {
  for (std::uint64_t chunk = 0; chunk < file_.chunks.size(); ++chunk) {
    load(chunk);
    if (verified) verified();
  }
}

}  // namespace trireme::checkpoint
