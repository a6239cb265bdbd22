#include "data/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "data/json.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t most_header_bytes = std::size_t{100} << 20;

constexpr std::array<std::pair<std::string_view, DType>, 7> dtypes = {{{"F64", DType::f64},
                                                                       {"F32", DType::f32},
                                                                       {"BF16", DType::bf16},
                                                                       {"F16", DType::f16},
                                                                       {"I64", DType::i64},
                                                                       {"I32", DType::i32},
                                                                       {"U8", DType::u8}}};

std::string_view format_name(DType dtype) {
  return std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& entry) { return entry.second == dtype; })->first;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  fail(ExitCode::data, "safetensors", "{}: {}", path.string(), what);
}

DType dtype_named(const std::string& name, const std::filesystem::path& path, const std::string& tensor) {
  for (const auto& [text, dtype] : dtypes) {
    if (text == name) return dtype;
  }
  refuse(path, fmt::format("tensor {} has dtype {}; expected one of F64, F32, BF16, F16, I64, I32, U8", tensor, name));
}

Shape parse_shape(const nlohmann::json& json, const std::filesystem::path& path, const std::string& tensor) {
  std::vector<std::int64_t> extents;
  std::int64_t count = 1;
  if (!json.is_array() || json.size() > Shape::max_dims)
    refuse(path, fmt::format("tensor {} has a malformed shape", tensor));
  for (const nlohmann::json& extent : json) {
    if (!extent.is_number_unsigned()) refuse(path, fmt::format("tensor {} has a malformed shape", tensor));
    const auto value = extent.get<std::uint64_t>();
    if (value > (std::uint64_t{1} << 40) || __builtin_mul_overflow(count, static_cast<std::int64_t>(value), &count) ||
        count > (std::int64_t{1} << 56)) {
      refuse(path, fmt::format("tensor {} has a shape too large to exist", tensor));
    }
    extents.push_back(static_cast<std::int64_t>(value));
  }
  return Shape(std::span<const std::int64_t>(extents));
}

std::size_t byte_count(DType dtype, const Shape& shape) {
  return static_cast<std::size_t>(shape.count()) * size_of(dtype);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  std::uint64_t header_bytes = 0;
  if (file_.size() < sizeof header_bytes)
    refuse(path, fmt::format("{} bytes are too short for a header", file_.size()));
  std::memcpy(&header_bytes, file_.bytes().data(), sizeof header_bytes);
  if (header_bytes > most_header_bytes || header_bytes > file_.size() - sizeof header_bytes) {
    refuse(path, fmt::format("the header claims {} bytes, the file has {}", header_bytes, file_.size()));
  }
  data_begin_ = sizeof header_bytes + static_cast<std::size_t>(header_bytes);
  const nlohmann::json header =
      parse_json(file_.text().substr(sizeof header_bytes, static_cast<std::size_t>(header_bytes)), path);
  if (!header.is_object()) refuse(path, "the header is not a JSON object");
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) refuse(path, "__metadata__ is not an object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) refuse(path, fmt::format("metadata {} is not a string", key));
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    const bool complete =
        value.is_object() && value.contains("dtype") && value["dtype"].is_string() && value.contains("shape") &&
        value.contains("data_offsets") && value["data_offsets"].is_array() && value["data_offsets"].size() == 2 &&
        value["data_offsets"][0].is_number_unsigned() && value["data_offsets"][1].is_number_unsigned();
    if (!complete) refuse(path, fmt::format("tensor {} lacks a valid dtype, shape or data_offsets", name));
    tensors_[name] = {dtype_named(value["dtype"].get<std::string>(), path, name),
                      parse_shape(value["shape"], path, name), value["data_offsets"][0].get<std::size_t>(),
                      value["data_offsets"][1].get<std::size_t>()};
  }
  check_layout(file_.size() - data_begin_);
}

void SafetensorsFile::check_layout(std::size_t data_bytes) const {
  std::vector<std::pair<std::size_t, const std::string*>> order;
  for (const auto& [name, entry] : tensors_) {
    if (entry.end < entry.begin || entry.end > data_bytes ||
        entry.end - entry.begin != byte_count(entry.dtype, entry.shape)) {
      refuse(file_.path(), fmt::format("tensor {} has bytes [{}, {}) of {}, which do not fit {} {}", name, entry.begin,
                                       entry.end, data_bytes, format_name(entry.dtype), to_string(entry.shape)));
    }
    order.emplace_back(entry.begin, &name);
  }
  std::sort(order.begin(), order.end(), [this](const auto& a, const auto& b) {
    return std::pair(a.first, find(*a.second).end) < std::pair(b.first, find(*b.second).end);
  });
  std::size_t expected = 0;
  for (const auto& [begin, name] : order) {
    if (begin != expected)
      refuse(file_.path(),
             fmt::format("tensor {} begins at byte {}; expected {}: an overlap or a hole", *name, begin, expected));
    expected = find(*name).end;
  }
  if (expected != data_bytes)
    refuse(file_.path(), fmt::format("{} bytes after the last tensor", data_bytes - expected));
}

const SafetensorsFile::Entry& SafetensorsFile::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(file_.path(), fmt::format("there is no tensor {}", name));
  return found->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const Entry& entry = find(name);
  Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
  if (entry.end > entry.begin)
    std::memcpy(tensor.raw(), file_.bytes().data() + data_begin_ + entry.begin, entry.end - entry.begin);
  return tensor;
}

std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata,
                               std::vector<std::uint64_t>* offsets) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::size_t end = offset + byte_count(entry.dtype, entry.shape);
    header[entry.name] = {{"dtype", format_name(entry.dtype)},
                          {"shape", std::vector<std::int64_t>(entry.shape.begin(), entry.shape.end())},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that tensors are aligned
  const std::uint64_t length = text.size();
  std::string result(reinterpret_cast<const char*>(&length), sizeof length);
  result += text;
  if (offsets != nullptr) {
    std::uint64_t begin = result.size();
    for (const SafetensorsEntry& entry : entries) {
      offsets->push_back(begin);
      begin += byte_count(entry.dtype, entry.shape);
    }
  }
  return result;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : entries_(entries) {
  const std::string header = safetensors_header(entries, metadata);
  std::uint64_t bytes = header.size();
  for (const SafetensorsEntry& entry : entries_) bytes += byte_count(entry.dtype, entry.shape);
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
