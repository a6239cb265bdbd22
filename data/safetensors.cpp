#include "data/safetensors.h"

#include <cstring>

namespace trireme {
namespace {

/// Copies a rectangle of a dense tensor with the shape `whole` into a dense one with the shape `part`. Both pointers
/// are to the first element of the rectangle's dims from `dim` on.
void copy_rectangle(const std::byte* from, const Shape& whole, std::byte* to, const Shape& part, std::size_t element,
                    int dim) {
  std::size_t from_row = element, to_row = element;  // bytes of one index of `dim`
  for (int inner = dim + 1; inner < part.dims(); ++inner) {
    from_row *= static_cast<std::size_t>(whole[inner]);
    to_row *= static_cast<std::size_t>(part[inner]);
  }
  const auto rows = static_cast<std::size_t>(dim < part.dims() ? part[dim] : 1);
  if (from_row == to_row) {
    std::memcpy(to, from, rows * to_row);
    return;
  }
  for (std::size_t row = 0; row < rows; ++row)
    copy_rectangle(from + row * from_row, whole, to + row * to_row, part, element, dim + 1);
}

}  // namespace

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

void SafetensorsFile::read(std::string_view name, const Shape& start, Tensor& into) const {
  const SafetensorsLayout::Stored& entry = find(name);
  bool inside = start.dims() == entry.shape.dims() && into.dims() == entry.shape.dims();
  for (int dim = 0; inside && dim < start.dims(); ++dim)
    inside = start[dim] >= 0 && start[dim] + into.size(dim) <= entry.shape[dim];
  require(inside && into.dtype() == entry.dtype && into.contiguous() && into.device() == Device::cpu, "safetensors",
          "{} is {} {}; expected a dense part of it on the host, got {} {} from {}", name, trireme::name(entry.dtype),
          entry.shape, trireme::name(into.dtype()), into.shape(), start);
  if (into.count() == 0) return;
  const Shape strides = row_major_strides(entry.shape);
  std::int64_t first = 0;
  for (int dim = 0; dim < start.dims(); ++dim) first += start[dim] * strides[dim];
  const std::size_t element = size_of(entry.dtype);
  copy_rectangle(file_.bytes().data() + entry.begin + static_cast<std::size_t>(first) * element, entry.shape,
                 static_cast<std::byte*>(into.raw()), into.shape(), element, 0);
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
