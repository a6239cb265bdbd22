// Chunks: the unit in which a checkpoint's files are checked. Read next: parallel/checkpoint/checkpoint.h.
#pragma once

#include <functional>
#include <optional>

#include "core/io.h"
#include "parallel/checkpoint/manifest.h"

namespace trireme::checkpoint {

/// Throws ExitCode::data if a checkpoint's folder has disappeared; the message says so, as this is not damage.
void require_still_there(const std::filesystem::path& folder);
/// The same for a folder that is being written: throws ExitCode::io.
void require_not_removed(const std::filesystem::path& folder);

/// The checksum of each chunk of a file with this content.
std::vector<std::uint64_t> checksums(std::span<const std::byte> content);

/// Reads a file of a checkpoint chunk by chunk, and verifies each chunk before using its data. Keeps the last chunk, so
/// that reading forward reads each chunk once. A checkpoint has as many files as its writer had ranks, so a reader can
/// close its file and open it again.
class ChunkReader {
 public:
  /// Throws ExitCode::data when the file is missing or has another size.
  ChunkReader(const std::filesystem::path& folder, const StoredFile& file);

  /// Copies the bytes from `offset` on. Throws ExitCode::data naming file, chunk and bytes when a chunk is damaged.
  void read(std::uint64_t offset, std::span<std::byte> into);
  /// Verifies every chunk; calls `verified` after each. Throws as read().
  void verify_all(const std::function<void()>& verified = {});
  void close() { input_.reset(); }  ///< reading opens the file again
  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes_read() const { return bytes_read_; }  ///< from the file, so far

 private:
  void open();
  void load(std::uint64_t chunk);

  StoredFile file_;
  std::filesystem::path path_;
  std::optional<InputFile> input_;
  std::vector<std::byte> chunk_;
  std::uint64_t loaded_;  // index of the chunk in chunk_; the number of chunks: none
  std::uint64_t bytes_read_ = 0;
};

}  // namespace trireme::checkpoint
