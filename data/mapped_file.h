// A file as a span of bytes: mapped read-only into memory, so that a corpus larger than memory can be sampled and
// ranks of one machine share its pages.
// Read next: data/token_shard.h, which gives the bytes a meaning.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace trireme {

class MappedFile {
 public:
  /// Maps the whole file. Throws ExitCode::io naming the path and the system's reason, also for what is not a regular
  /// file.
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

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;  // null for an empty file, which cannot be mapped
  std::size_t size_ = 0;
};

}  // namespace trireme
