// A file that grows over several starts of a program: a start that was killed leaves it longer than what is known to be
// complete, and the next start cuts it back to that.
//
//   GrowingFile file(path, 0);         // the first start: a new file
//   file.write(bytes);
//   file.sync();                       // file.size() bytes are safe: note this number somewhere
//   GrowingFile again(path, noted);    // a later start: goes on behind them
//
// Read next: core/io.h (files that are complete or absent), data/token_shard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace trireme {

/// A file that grows over several starts of a program; see the top of this file.
class GrowingFile {
 public:
  /// Creates `path` if needed, and cuts it to `bytes`. Throws ExitCode::data if it is shorter, or no regular file;
  /// ExitCode::io if the system refuses.
  GrowingFile(std::filesystem::path path, std::uint64_t bytes);
  ~GrowingFile();  ///< what was not synced may be lost
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< with what is not yet on disk
  /// Appends; small pieces are gathered.
  void write(std::span<const std::byte> bytes);
  /// Replaces bytes that were written. [offset, offset + bytes.size()) must lie within the file.
  void rewrite(std::uint64_t offset, std::span<const std::byte> bytes);
  void sync();  ///< returns when everything is on disk

 private:
  void flush();

  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::vector<std::byte> gathered_;
};

}  // namespace trireme
