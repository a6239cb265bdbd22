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

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// What a file of these tensors begins with: the header's length and the header, padded so that the tensors, which
/// follow without gaps in this order, are aligned. `offsets`, when given, gets where each begins in the file.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata,
                               std::vector<std::uint64_t>* offsets = nullptr);

/// A file of tensors, mapped into memory. The header is checked before anything is read: sizes, overlaps, holes and
/// trailing bytes are refused with ExitCode::data, naming the file and the entry.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  std::vector<std::string> names() const;
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  Tensor read(std::string_view name) const;  ///< a copy; throws ExitCode::data when there is no such tensor

 private:
  struct Entry {
    DType dtype;
    Shape shape;
    std::size_t begin, end;  // bytes, in the data part
  };
  const Entry& find(std::string_view name) const;
  void check_layout(std::size_t data_bytes) const;

  MappedFile file_;
  std::size_t data_begin_ = 0;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file tensor by tensor, in the order announced; it appears under its name at commit().
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                    const std::map<std::string, std::string>& metadata);
  void write(const Tensor& tensor);  ///< the next entry: its dtype and shape must match
  void commit();
  std::uint64_t bytes() const { return file_->bytes_written(); }

 private:
  std::vector<SafetensorsEntry> entries_;
  std::size_t next_ = 0;
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace trireme
