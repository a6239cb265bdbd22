// Reads an input from beginning to end: a file, standard input or memory, decompressed if needed. Uses constant memory:
// it reads ahead by at most one block.
//
//   const auto raw = std::make_shared<FileBytes>("texts.jsonl.gz");
//   const auto bytes = decompressed(raw, compression_of("texts.jsonl.gz"), "texts.jsonl.gz");
//   while (const std::size_t count = bytes->read(buffer)) ...
//
// Read next: data/prepare/block_reader.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "core/io.h"

namespace trireme {

/// Bytes from the first to the last.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Puts the next bytes into `bytes`, and returns how many: fewer than asked for only at the end.
  virtual std::size_t read(std::span<char> bytes) = 0;
};

/// A stream of bytes as they are stored, which knows how far it has come.
class StoredBytes : public ByteStream {
 public:
  std::uint64_t position() const { return position_; }  ///< bytes read

 protected:
  std::uint64_t position_ = 0;
};

/// A regular file, as long as it is when it is opened. Throws as InputFile does, also if it becomes shorter.
class FileBytes : public StoredBytes {
 public:
  explicit FileBytes(std::filesystem::path path) : file_(std::move(path)) {}
  std::size_t read(std::span<char> bytes) override;
  void seek(std::uint64_t position);  ///< throws ExitCode::data if it lies beyond the end

 private:
  InputFile file_;
};

/// Standard input. Throws ExitCode::io if it cannot be read.
class StandardInputBytes : public StoredBytes {
 public:
  std::size_t read(std::span<char> bytes) override;
};

/// Bytes in memory, which must outlive this object.
class MemoryBytes : public StoredBytes {
 public:
  explicit MemoryBytes(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(std::span<char> bytes) override;

 private:
  std::string_view bytes_;
};

/// How a file is compressed.
enum class Compression : std::uint8_t { none, gzip, zstd };

/// By the name's ending: .gz, .zst or none.
Compression compression_of(const std::filesystem::path& path);

/// The bytes of `stored` without their compression; `path` is what messages call it. Several compressed pieces one
/// after the other (as pigz, bgzip and pzstd write them) are one text. zstd may ask for a window of up to 128 MiB.
///
/// read() throws ExitCode::data, with the byte of the compressed file, for what is not of this format, damaged, cut
/// short, or followed by something else. Throws ExitCode::usage if this build does not have the library.
std::unique_ptr<ByteStream> decompressed(std::shared_ptr<StoredBytes> stored, Compression compression,
                                         const std::filesystem::path& path);

}  // namespace trireme
