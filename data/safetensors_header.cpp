// The header of a safetensors file, read and written. A header that is read is not trusted: every number is checked
// before it is used.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "core/extents.h"
#include "data/json.h"
#include "data/safetensors.h"
#include "data/stand_in.h"
#include "data/utf8.h"

namespace trireme {
namespace {

using Stored = SafetensorsLayout::Stored;
using nlohmann::json;

constexpr std::uint64_t length_bytes = 8;

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

std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [text, dtype] : dtypes) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

std::size_t byte_count(DType dtype, const Shape& shape) {
  return static_cast<std::size_t>(shape.count()) * size_of(dtype);
}

class Parser {
 public:
  /// `content`: of the whole file, or its beginning with the whole header.
  Parser(std::string_view content, std::uint64_t file_bytes, const std::filesystem::path& path)
      : content_(content), file_bytes_(file_bytes), path_(path) {}

  SafetensorsLayout parse() {
    const std::uint64_t header_bytes = header_length();
    data_begin_ = length_bytes + header_bytes;
    const std::string_view header = content_.substr(length_bytes, static_cast<std::size_t>(header_bytes));
    if (!header.starts_with('{')) refuse(length_bytes, "the header is not a JSON object; expected {");
    parse_json(
        header, path_, [this](const JsonPlace& place, json& value) { return take(place, value); }, length_bytes);
    check_coverage();
    return std::move(layout_);
  }

 private:
  [[noreturn]] void refuse(std::uint64_t byte, const std::string& what) const {
    fail(ExitCode::data, "safetensors", "{} byte {}: {}", path_.string(), byte, what);
  }

  std::uint64_t header_length() const {
    refuse_stand_in(content_, path_);
    if (content_.size() < length_bytes)
      refuse(content_.size(),
             fmt::format("the file ends here, too short for a header; expected at least {} bytes", length_bytes));
    static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, content_.data(), sizeof bytes);
    const std::uint64_t most = std::min<std::uint64_t>(content_.size() - length_bytes, safetensors_most_header_bytes);
    if (bytes > most)
      refuse(0,
             fmt::format("the header claims {} bytes; expected at most {} in a file of {}", bytes, most, file_bytes_));
    return bytes;
  }

  /// An entry of the header, or of its metadata.
  bool take(const JsonPlace& place, json& value) {
    constexpr std::string_view metadata = "__metadata__";
    if (place.depth == 2) {
      if (place.parent != metadata) return false;  // a part of a tensor's entry
      if (place.in_array) refuse(place.at, "__metadata__ is an array; expected an object of texts");
      if (!value.is_string())
        refuse(place.at, fmt::format("metadata {} is {}; expected a text", in_quotes(place.key), shown(value)));
      charge(place.at, place.key.size() + value.get_ref<const std::string&>().size() + 128);
      if (!layout_.metadata.emplace(place.key, value.get<std::string>()).second) refuse_twice(place);
    } else if (place.key == metadata) {
      if (!value.is_object()) refuse(place.at, fmt::format("__metadata__ is {}; expected an object", shown(value)));
      if (std::exchange(has_metadata_, true)) refuse_twice(place);
    } else if (!layout_.tensors.emplace(place.key, tensor_from(place, value)).second) {
      refuse_twice(place);
    } else {
      charge(place.at, place.key.size() + 192);
    }
    return true;
  }

  [[noreturn]] void refuse_twice(const JsonPlace& place) const {
    refuse(place.at, fmt::format("the key {} occurs twice; expected it once", in_quotes(place.key)));
  }

  /// If the header's entries are tiny, what is kept of them takes a few times the header's size.
  void charge(std::uint64_t at, std::size_t bytes) {
    kept_ += bytes;
    if (kept_ > json_most_bytes)
      refuse(at, fmt::format("the header's entries so far take more than {} bytes of memory; expected fewer",
                             json_most_bytes));
  }

  Stored tensor_from(const JsonPlace& place, const json& value) const {
    const std::string tensor = "tensor " + in_quotes(place.key);
    const auto is_range = [](const json& v) {
      return v.is_array() && v.size() == 2 && v[0].is_number_unsigned() && v[1].is_number_unsigned();
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
        !value.contains("data_offsets") || !is_range(value["data_offsets"]))
      refuse(place.at, tensor + " lacks a valid dtype, shape or data_offsets; expected all three");
    const auto dtype = dtype_named(value["dtype"].get_ref<const std::string&>());
    if (!dtype)
      refuse(place.at, fmt::format("{} has dtype {}; expected one of F64, F32, BF16, F16, I64, I32, U8", tensor,
                                   shown(value["dtype"])));
    Stored stored{.dtype = *dtype, .shape = shape_from(place, value["shape"]), .header_at = place.at};
    const auto begin = value["data_offsets"][0].get<std::uint64_t>(),
               end = value["data_offsets"][1].get<std::uint64_t>();
    const std::uint64_t data_bytes = file_bytes_ - data_begin_;
    const std::uint64_t needed = byte_count(stored.dtype, stored.shape);
    if (end > data_bytes && begin <= end && end - begin == needed)
      refuse(place.at,
             fmt::format("{} has bytes [{}, {}) of the data, of which the file has {}; expected a whole file; "
                         "this one was cut short: copy it once more",
                         tensor, begin, end, data_bytes));
    if (end < begin || end > data_bytes || end - begin != needed)
      refuse(place.at, fmt::format("{} has bytes [{}, {}) of {}, which do not fit {} {}; expected {} of them", tensor,
                                   begin, end, data_bytes, format_name(stored.dtype), stored.shape, needed));
    stored.begin = data_begin_ + begin;
    stored.end = data_begin_ + end;
    return stored;
  }

  Shape shape_from(const JsonPlace& place, const json& value) const {
    std::vector<std::int64_t> extents;
    if (!value.is_array() || value.size() > Shape::max_dims)
      refuse(place.at, fmt::format("tensor {} has a malformed shape {}; expected at most {} whole numbers",
                                   in_quotes(place.key), shown(value), Shape::max_dims));
    for (const json& extent : value) {
      if (!extent.is_number_unsigned())
        refuse(place.at, fmt::format("tensor {} has a malformed shape {}; expected whole numbers", in_quotes(place.key),
                                     shown(value)));
      extents.push_back(static_cast<std::int64_t>(extent.get<std::uint64_t>()));  // negative if it does not fit
      if (!are_possible(extents))
        refuse(place.at, fmt::format("tensor {} has a shape too large to exist, {}; expected at most 2^48 elements",
                                     in_quotes(place.key), shown(value)));
    }
    return Shape(std::span<const std::int64_t>(extents));
  }

  /// The tensors follow one another without overlap or hole, up to the last byte.
  void check_coverage() const {
    std::vector<const std::pair<const std::string, Stored>*> by_begin;
    by_begin.reserve(layout_.tensors.size());
    for (const auto& entry : layout_.tensors) by_begin.push_back(&entry);
    std::sort(by_begin.begin(), by_begin.end(), [](const auto* a, const auto* b) {
      return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
    });
    std::uint64_t expected = data_begin_;
    for (const auto* entry : by_begin) {
      const auto& [name, tensor] = *entry;
      if (tensor.begin != expected)
        refuse(tensor.header_at, fmt::format("tensor {} begins at byte {} of the data; expected {}: {}",
                                             in_quotes(name), tensor.begin - data_begin_, expected - data_begin_,
                                             tensor.begin < expected ? "an overlap" : "a hole"));
      expected = tensor.end;
    }
    if (expected != file_bytes_)
      refuse(expected,
             fmt::format("{} bytes after the last tensor; expected the end of the file", file_bytes_ - expected));
  }

  std::string_view content_;
  std::uint64_t file_bytes_;
  const std::filesystem::path& path_;
  std::uint64_t data_begin_ = 0;
  std::size_t kept_ = 0;
  bool has_metadata_ = false;
  SafetensorsLayout layout_;
};

}  // namespace

SafetensorsLayout parse_safetensors(std::string_view content, const std::filesystem::path& path) {
  return Parser(content, content.size(), path).parse();
}

SafetensorsLayout parse_safetensors_header(std::string_view beginning, std::uint64_t file_bytes,
                                           const std::filesystem::path& path) {
  return Parser(beginning, file_bytes, path).parse();
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

}  // namespace trireme
