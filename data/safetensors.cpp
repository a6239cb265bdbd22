#include "data/safetensors.h"

#include <cstring>

namespace trireme {
SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path), layout_(parse_safetensors(file_.text(), path)) {}

const SafetensorsLayout::Stored& SafetensorsFile::find(std::string_view name) const {
  const auto found = layout_.tensors.find(name);
  if (found == layout_.tensors.end())
    fail(ExitCode::data, "safetensors", "{}: there is no tensor {}", file_.path().string(), name);
  return found->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : layout_.tensors) names.push_back(name);
  return names;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsLayout::Stored& entry = find(name);
  Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
  if (entry.end > entry.begin) std::memcpy(tensor.raw(), file_.bytes().data() + entry.begin, entry.end - entry.begin);
  return tensor;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : entries_(entries) {
  const std::string header = safetensors_header(entries, metadata);
  std::uint64_t bytes = header.size();
  for (const SafetensorsEntry& entry : entries_)
    bytes += static_cast<std::uint64_t>(entry.shape.count()) * size_of(entry.dtype);
  file_ = std::make_unique<AtomicFile>(path, bytes);
  file_->write(header);
}

void SafetensorsWriter::write(const Tensor& tensor) {
  require(next_ < entries_.size() && tensor.dtype() == entries_[next_].dtype && tensor.shape() == entries_[next_].shape,
          "safetensors", "tensor {} was announced with another dtype or shape than {} {}",
          next_ < entries_.size() ? entries_[next_].name : "past the last", name(tensor.dtype()),
          to_string(tensor.shape()));
  ++next_;
  const Tensor dense = contiguous(tensor);
  file_->write(std::span(static_cast<const std::byte*>(dense.raw()), static_cast<std::size_t>(dense.bytes())));
}

void SafetensorsWriter::commit() {
  require(next_ == entries_.size(), "safetensors", "{} of {} tensors were written", next_, entries_.size());
  file_->commit();
}

}  // namespace trireme
