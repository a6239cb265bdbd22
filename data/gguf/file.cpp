#include "data/gguf/file.h"

#include <cmath>
#include <cstring>

#include "core/half.h"
#include "core/hash.h"
#include "core/parallel_for.h"
#include "data/gguf/writer.h"
#include "data/utf8.h"

namespace trireme {
namespace {

/// The values of blocks `first` to `first + count` of Q8_0.
void from_q8_0(const std::byte* blocks, std::int64_t count, float* to) {
  for (std::int64_t block = 0; block < count; ++block, blocks += q8_0_bytes) {
    f16 scale;
    std::memcpy(&scale.bits, blocks, sizeof scale.bits);
    const auto d = static_cast<float>(scale);
    for (std::int64_t i = 0; i < q8_0_values; ++i)
      *to++ = d * static_cast<float>(static_cast<std::int8_t>(blocks[2 + i]));
  }
}

/// Calls row(place in the file's tensor, place in the rectangle, elements) for each run of neighbours of a rectangle
/// that begins at `start` of a tensor with the shape `whole`.
template <class Row>
void for_each_row(const Shape& whole, const Shape& start, const Shape& part, const Row& row) {
  const int last = part.dims() - 1;
  const Shape strides = row_major_strides(whole);
  const std::int64_t columns = part[last], rows = columns == 0 ? 0 : part.count() / columns;
  std::vector<std::int64_t> at(static_cast<std::size_t>(part.dims()), 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t from = 0;
    for (int dim = 0; dim <= last; ++dim) from += (start[dim] + at[static_cast<std::size_t>(dim)]) * strides[dim];
    row(from, r * columns, columns);
    for (int dim = last - 1; dim >= 0; --dim) {
      if (++at[static_cast<std::size_t>(dim)] < part[dim]) break;
      at[static_cast<std::size_t>(dim)] = 0;
    }
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path) : file_(path), layout_(parse_gguf(file_.text(), path)) {}

std::uint64_t GgufFile::fingerprint() const {
  std::uint64_t first = file_.size();
  for (const auto& [name, stored] : layout_.tensors) first = std::min(first, stored.begin);
  return hash_bytes(file_.text().substr(0, static_cast<std::size_t>(first))) ^ file_.size();
}

const GgufLayout::Stored* GgufFile::find(std::string_view name) const {
  const auto found = layout_.tensors.find(name);
  return found == layout_.tensors.end() ? nullptr : &found->second;
}

const GgufLayout::Stored& GgufFile::require_tensor(std::string_view name) const {
  if (const GgufLayout::Stored* stored = find(name)) return *stored;
  fail(ExitCode::data, "gguf", "{}: there is no tensor {}", path().string(), in_quotes(name));
}

Tensor GgufFile::read(std::string_view name) const {
  const GgufLayout::Stored& stored = require_tensor(name);
  Tensor tensor = Tensor::empty(stored.shape, stored_dtype(stored.storage));
  Shape start = stored.shape;
  for (int dim = 0; dim < start.dims(); ++dim) start = start.with(dim, 0);
  read(name, start, tensor);
  return tensor;
}

void GgufFile::read(std::string_view name, const Shape& start, Tensor& into) const {
  const GgufLayout::Stored& stored = require_tensor(name);
  bool inside = start.dims() == stored.shape.dims() && into.dims() == stored.shape.dims();
  for (int dim = 0; inside && dim < start.dims(); ++dim)
    inside = start[dim] >= 0 && start[dim] + into.size(dim) <= stored.shape[dim];
  require(inside && into.dtype() == stored_dtype(stored.storage) && into.contiguous() && into.device() == Device::cpu,
          "gguf", "{} is {} {}; expected a dense part of it on the host, got {} {} from {}", name,
          trireme::name(stored_dtype(stored.storage)), stored.shape, trireme::name(into.dtype()), into.shape(), start);
  const std::byte* data = file_.bytes().data() + stored.begin;
  auto* to = static_cast<std::byte*>(into.raw());
  const std::size_t element = size_of(into.dtype());
  for_each_row(stored.shape, start, into.shape(), [&](std::int64_t from, std::int64_t at, std::int64_t count) {
    if (stored.storage != GgufStorage::q8_0) {
      std::memcpy(to + static_cast<std::size_t>(at) * element, data + static_cast<std::size_t>(from) * element,
                  static_cast<std::size_t>(count) * element);
      return;
    }
    // The rectangle may begin and end within a block.
    auto* values = reinterpret_cast<float*>(to) + at;
    while (count > 0) {
      const std::int64_t within = from % q8_0_values;
      const std::byte* block = data + static_cast<std::size_t>(from / q8_0_values) * q8_0_bytes;
      const std::int64_t whole_blocks = within == 0 ? count / q8_0_values : 0;
      std::int64_t done = whole_blocks * q8_0_values;
      if (whole_blocks > 0) {
        from_q8_0(block, whole_blocks, values);
      } else {
        float decoded[q8_0_values];
        from_q8_0(block, 1, decoded);
        done = std::min(count, q8_0_values - within);
        std::memcpy(values, decoded + within, static_cast<std::size_t>(done) * sizeof(float));
      }
      values += done, from += done, count -= done;
    }
  });
}

// ---- writing --------------------------------------------------------------------------------------------------------

std::vector<std::byte> to_q8_0(const Tensor& x, std::string_view name) {
  const Tensor values = contiguous(cast(x.detach().to(Device::cpu), DType::f32));
  require(values.count() > 0 && values.size(-1) % q8_0_values == 0, "gguf", "{} {} has rows that are no multiple of {}",
          name, values.shape(), q8_0_values);
  std::vector<std::byte> bytes(gguf_bytes(GgufStorage::q8_0, static_cast<std::uint64_t>(values.count())));
  const float* from = values.data<float>();
  std::byte* to = bytes.data();
  for (std::int64_t block = 0; block < values.count() / q8_0_values; ++block, from += q8_0_values, to += q8_0_bytes) {
    float largest = 0;
    bool finite = true;
    for (std::int64_t i = 0; i < q8_0_values; ++i) {
      largest = std::max(largest, std::abs(from[i]));
      finite = finite && std::isfinite(from[i]);
    }
    const float d = largest / 127.0F, inverse = d > 1e-30F ? 1.0F / d : 0.0F;  // f16 rounds smaller ones to 0
    const f16 scale(d);
    if (!finite || !std::isfinite(static_cast<float>(scale)))
      fail(ExitCode::data, "gguf",
           "{}: {} among elements {} to {} cannot be stored as Q8_0; expected finite numbers, at most 8e6 in size; "
           "store the tensors as F32 or BF16",
           name, finite ? fmt::format("{}", largest) : std::string("infinity or NaN"), block * q8_0_values,
           (block + 1) * q8_0_values - 1);
    std::memcpy(to, &scale.bits, sizeof scale.bits);
    for (std::int64_t i = 0; i < q8_0_values; ++i)
      to[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(from[i] * inverse)));
  }
  return bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufValues& values,
                       const std::vector<GgufEntry>& entries)
    : entries_(entries) {
  const std::string header = gguf_header(values, entries);
  std::uint64_t bytes = header.size();
  for (const GgufEntry& entry : entries_)
    bytes += gguf_bytes(entry.storage, static_cast<std::uint64_t>(entry.shape.count())) + 32;
  file_ = std::make_unique<AtomicFile>(path, bytes);
  file_->write(header);
}

void GgufWriter::write(const Tensor& tensor) {
  require(next_ < entries_.size() && is_floating(tensor.dtype()) && tensor.shape() == entries_[next_].shape, "gguf",
          "tensor {} was announced with another shape than {}, or is not floating",
          next_ < entries_.size() ? entries_[next_].name : "past the last", to_string(tensor.shape()));
  const GgufEntry& entry = entries_[next_++];
  if (entry.storage == GgufStorage::q8_0) {
    file_->write(to_q8_0(tensor, entry.name));
  } else {
    const Tensor dense = contiguous(cast(tensor.detach().to(Device::cpu), stored_dtype(entry.storage)));
    file_->write(std::span(static_cast<const std::byte*>(dense.raw()), static_cast<std::size_t>(dense.bytes())));
  }
  static constexpr std::string_view zeros("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32);
  if (const std::uint64_t beyond = file_->bytes_written() % zeros.size(); beyond > 0)
    file_->write(zeros.substr(0, static_cast<std::size_t>(zeros.size() - beyond)));
}

void GgufWriter::commit() {
  require(next_ == entries_.size(), "gguf", "{} of {} tensors were written", next_, entries_.size());
  file_->commit();
}

}  // namespace trireme
