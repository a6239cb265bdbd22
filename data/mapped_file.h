// A file as a span of bytes: mapped read-only into memory, so that a corpus larger than memory can be sampled and
// ranks of one machine share its pages.
//
// Another program may cut the file short while it is mapped. Reading a page that is gone raises SIGBUS: the process
// then ends with ExitCode::data and a message that names the file. The rest of the last page reads as zeros, without a
// signal: require_whole() finds that. Read next: data/token_shard.h, which gives the bytes a meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace trireme {

/// A file that is read as memory; its pages are loaded when they are touched.
class MappedFile {
 public:
  /// Maps the whole file. Throws ExitCode::io naming the path and the system's reason; ExitCode::data, with what it is,
  /// if it is not a regular file. Does not block on a pipe.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  std::size_t size() const { return size_; }

  /// Throws ExitCode::data if the file has become shorter since it was mapped. Call it after reading: what was read
  /// before is then what the file held. A file that was removed or replaced stays whole in memory.
  void require_whole() const;

 private:
  struct Region;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;  // null for an empty file, which cannot be mapped
  std::size_t size_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
  Region* region_ = nullptr;  // what the handler of SIGBUS knows of it
};

}  // namespace trireme
