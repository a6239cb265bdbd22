// Values, and ways to store tensors, of a GGUF file.
#include <algorithm>
#include <limits>

#include "data/gguf/file.h"
#include "data/gguf/numbers.h"

namespace trireme {

const GgufValue* GgufLayout::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &values[found->second].second;
}

std::string_view name(GgufType type) {
  static constexpr std::string_view names[] = {"u8",      "i8",   "u16",   "i16", "u32", "i32", "f32",
                                               "boolean", "text", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

bool GgufValue::is_whole() const {
  switch (type_) {
    case GgufType::f32:
    case GgufType::f64:
    case GgufType::boolean:
    case GgufType::text:
    case GgufType::array:
      return false;
    default:
      return true;
  }
}

std::int64_t GgufValue::whole() const {
  switch (type_) {
    case GgufType::u8:
      return gguf_numbers::load<std::uint8_t>(bytes_);
    case GgufType::i8:
      return gguf_numbers::load<std::int8_t>(bytes_);
    case GgufType::u16:
      return gguf_numbers::load<std::uint16_t>(bytes_);
    case GgufType::i16:
      return gguf_numbers::load<std::int16_t>(bytes_);
    case GgufType::u32:
      return gguf_numbers::load<std::uint32_t>(bytes_);
    case GgufType::i32:
      return gguf_numbers::load<std::int32_t>(bytes_);
    case GgufType::i64:
      return gguf_numbers::load<std::int64_t>(bytes_);
    case GgufType::u64:
      return static_cast<std::int64_t>(
          std::min<std::uint64_t>(gguf_numbers::load<std::uint64_t>(bytes_), std::numeric_limits<std::int64_t>::max()));
    default:
      fail(ExitCode::internal, "gguf", "a {} is no whole number", trireme::name(type_));
  }
}

double GgufValue::number() const {
  if (type_ == GgufType::f32) return gguf_numbers::load<float>(bytes_);
  if (type_ == GgufType::f64) return gguf_numbers::load<double>(bytes_);
  return static_cast<double>(whole());
}

bool GgufValue::truth() const {
  require(type_ == GgufType::boolean, "gguf", "a {} is no boolean", trireme::name(type_));
  return bytes_[0] != 0;
}

std::string_view GgufValue::text() const {
  require(type_ == GgufType::text, "gguf", "a {} is no text", trireme::name(type_));
  return bytes_;
}

GgufType GgufValue::elements() const {
  require(type_ == GgufType::array, "gguf", "a {} is no array", trireme::name(type_));
  return elements_;
}

std::uint64_t GgufValue::count() const {
  require(type_ == GgufType::array, "gguf", "a {} is no array", trireme::name(type_));
  return count_;
}

void GgufValue::for_each(const std::function<void(const GgufValue&)>& each) const {
  std::string_view rest = bytes_;
  const std::uint64_t elements = count();
  for (std::uint64_t i = 0; i < elements; ++i) {
    std::size_t skipped = 0, bytes = gguf_numbers::size_of(elements_);
    if (elements_ == GgufType::text) {
      skipped = sizeof(std::uint64_t);
      bytes = static_cast<std::size_t>(gguf_numbers::load<std::uint64_t>(rest));
    }
    each({elements_, rest.substr(skipped, bytes), at_});
    rest.remove_prefix(skipped + bytes);
  }
}

std::string_view name(GgufStorage storage) {
  switch (storage) {
    case GgufStorage::f32:
      return "F32";
    case GgufStorage::f16:
      return "F16";
    case GgufStorage::q8_0:
      return "Q8_0";
    case GgufStorage::i32:
      return "I32";
    case GgufStorage::i64:
      return "I64";
    case GgufStorage::f64:
      return "F64";
    case GgufStorage::bf16:
      return "BF16";
  }
  return "";
}

DType stored_dtype(GgufStorage storage) {
  switch (storage) {
    case GgufStorage::f32:
    case GgufStorage::q8_0:
      return DType::f32;
    case GgufStorage::f16:
      return DType::f16;
    case GgufStorage::i32:
      return DType::i32;
    case GgufStorage::i64:
      return DType::i64;
    case GgufStorage::f64:
      return DType::f64;
    case GgufStorage::bf16:
      return DType::bf16;
  }
  return DType::f32;
}

std::uint64_t gguf_bytes(GgufStorage storage, std::uint64_t elements) {
  if (storage == GgufStorage::q8_0) return elements / static_cast<std::uint64_t>(q8_0_values) * q8_0_bytes;
  return elements * trireme::size_of(stored_dtype(storage));
}

}  // namespace trireme
