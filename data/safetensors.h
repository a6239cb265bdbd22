// The safetensors format (huggingface.co/docs/safetensors): 8 bytes of header length (little-endian), a JSON header
// with dtype, shape and byte range of every tensor, then the bytes. Other tools can read what we write. Read next:
// parallel/checkpoint/checkpoint.h, which keeps a training run in such files.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io.h"
#include "core/tensor.h"
#include "data/mapped_file.h"

namespace trireme {

/// What a header says about one tensor.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// The beginning of a file of these tensors: the header's length and the header, padded so that the tensors are
/// aligned. The tensors follow in this order, without gaps. `offsets`, if given, receives each tensor's offset in the
/// file.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata,
                               std::vector<std::uint64_t>* offsets = nullptr);

/// What the header of a file says, checked against the file's size.
struct SafetensorsLayout {
  /// Where a tensor is.
  struct Stored {
    DType dtype = DType::f32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;  ///< bytes, in the file
    std::uint64_t header_at = 0;       ///< the byte at which its entry in the header begins
  };
  std::map<std::string, Stored, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

inline constexpr std::uint64_t safetensors_most_header_bytes = std::uint64_t{16} << 20;

/// Parses the content of `path`. Throws ExitCode::data, with file and byte, for a header that is longer than the file
/// or safetensors_most_header_bytes, that is not strict JSON (data/json.h), or whose tensors have sizes that overflow
/// or do not fit dtype and shape, overlap, leave holes, or leave bytes at the end.
SafetensorsLayout parse_safetensors(std::string_view content, const std::filesystem::path& path);

/// The same for the beginning of such a file, of `file_bytes` bytes in all: at least its header.
SafetensorsLayout parse_safetensors_header(std::string_view beginning, std::uint64_t file_bytes,
                                           const std::filesystem::path& path);

/// A file of tensors, mapped into memory. The header is checked before anything is read.
/// @snippet files_test.cpp safetensors
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  ///< throws as parse_safetensors()

  const std::map<std::string, std::string>& metadata() const { return layout_.metadata; }
  /// Whether there is such a tensor.
  bool contains(std::string_view name) const { return layout_.tensors.find(name) != layout_.tensors.end(); }
  std::vector<std::string> names() const;  ///< of all tensors, sorted
  /// Throws ExitCode::data when there is no such tensor.
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  /// Throws ExitCode::data when there is no such tensor.
  DType dtype(std::string_view name) const { return find(name).dtype; }
  Tensor read(std::string_view name) const;  ///< a copy; throws ExitCode::data when there is no such tensor
  /// Fills `into`, a dense tensor on the host in the stored dtype, with the rectangle that begins at `start`. Only its
  /// pages of the file are read.
  void read(std::string_view name, const Shape& start, Tensor& into) const;
  /// Throws ExitCode::data if the file has become shorter since it was opened. Call it after reading.
  void require_whole() const { file_.require_whole(); }

 private:
  const SafetensorsLayout::Stored& find(std::string_view name) const;

  MappedFile file_;
  SafetensorsLayout layout_;
};

/// Writes a file tensor by tensor, in the order announced; it appears under its name at commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                    const std::map<std::string, std::string>& metadata);
  void write(const Tensor& tensor);  ///< the next entry: its dtype and shape must match
  /// Call it after the last tensor: the file gets its name. Throws ExitCode::io.
  void commit();
  std::uint64_t bytes() const { return file_->bytes_written(); }

 private:
  std::vector<SafetensorsEntry> entries_;
  std::size_t next_ = 0;
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace trireme
