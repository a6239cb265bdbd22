// The header of a GGUF file, read. It is not trusted: every number is checked before it is used.
#include <bit>
#include <limits>

#include "core/extents.h"
#include "data/gguf/file.h"
#include "data/gguf/numbers.h"
#include "data/stand_in.h"
#include "data/utf8.h"

namespace trireme {
namespace {

constexpr std::string_view magic = "GGUF";

/// Names of the ways to store tensors that are not read here, by their numbers.
const char* other_storage(std::uint32_t number) {
  static constexpr const char* names[] = {nullptr,   nullptr,  "Q4_0",    "Q4_1",  nullptr,  nullptr, "Q5_0",  "Q5_1",
                                          nullptr,   "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                                          "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                                          "I8",      "I16",    nullptr,   nullptr, nullptr,  "IQ1_M", nullptr, nullptr,
                                          nullptr,   nullptr,  "TQ1_0",   "TQ2_0", nullptr,  nullptr, nullptr, "MXFP4"};
  return number < std::size(names) ? names[number] : nullptr;
}

class Parser {
 public:
  Parser(std::string_view content, const std::filesystem::path& path) : content_(content), path_(path) {}

  [[noreturn]] void refuse(std::size_t byte, const std::string& what) const {
    fail(ExitCode::data, "gguf", "{} byte {}: {}", path_.string(), byte, what);
  }
  std::size_t at() const { return at_; }
  std::size_t left() const { return content_.size() - at_; }

  std::string_view take(std::uint64_t bytes, const char* what) {
    if (bytes > left())
      refuse(at_,
             fmt::format("{} of {} bytes, and {} are left in the file; expected at most as many", what, bytes, left()));
    const std::string_view taken = content_.substr(at_, static_cast<std::size_t>(bytes));
    at_ += taken.size();
    return taken;
  }
  template <class T>
  T number(const char* what) {
    return gguf_numbers::load<T>(take(sizeof(T), what));
  }
  std::string_view text(const char* what, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    const std::size_t begin = at_;
    const auto length = number<std::uint64_t>("the length of a text");
    if (length > most) refuse(begin, fmt::format("{} of {} bytes; expected at most {}", what, length, most));
    return take(length, what);
  }
  /// A key or a name: a text that a message can show.
  std::string_view label(const char* what, std::size_t most) {
    const std::size_t begin = at_;
    const std::string_view label = text(what, most);
    if (label.empty() || !is_printable(label))
      refuse(begin, fmt::format("{} is {}; expected printable UTF-8", what, in_quotes(label)));
    return label;
  }
  GgufType type(const char* what) {
    const std::size_t begin = at_;
    const auto number = this->number<std::uint32_t>(what);
    if (number > static_cast<std::uint32_t>(GgufType::f64))
      refuse(begin, fmt::format("{} is {}; expected 0 to 12", what, number));
    return static_cast<GgufType>(number);
  }

  GgufValue value() {
    const GgufType type = this->type("the type of a value");
    const std::size_t begin = at_;
    if (type == GgufType::array) return array();
    if (type == GgufType::text) return {type, text("a text"), begin};
    return {type, scalar(type), begin};
  }

 private:
  std::string_view scalar(GgufType type) {
    const std::size_t begin = at_;
    const std::string_view bytes = take(gguf_numbers::size_of(type), "a value");
    if (type == GgufType::boolean && static_cast<unsigned char>(bytes[0]) > 1)
      refuse(begin, fmt::format("a boolean is {}; expected 0 or 1", static_cast<unsigned char>(bytes[0])));
    return bytes;
  }

  GgufValue array() {
    const std::size_t begin = at_;
    const GgufType elements = type("the type of an array");
    if (elements == GgufType::array) refuse(begin, "an array of arrays; expected an array of values");
    const std::size_t count_at = at_;
    const auto count = number<std::uint64_t>("the length of an array");
    const std::size_t each = elements == GgufType::text ? sizeof(std::uint64_t) : gguf_numbers::size_of(elements);
    if (count > left() / each)
      refuse(count_at, fmt::format("an array of {} elements, and {} bytes are left in the file; expected at most {}",
                                   count, left(), left() / each));
    const std::size_t first = at_;
    if (elements == GgufType::text || elements == GgufType::boolean)
      for (std::uint64_t i = 0; i < count; ++i) elements == GgufType::text ? text("a text") : scalar(elements);
    else
      take(count * each, "an array");
    return {elements, count, content_.substr(first, at_ - first), begin};
  }

  std::string_view content_;
  const std::filesystem::path& path_;
  std::size_t at_ = 0;
};

std::uint32_t read_version(Parser& p) {
  if (p.take(magic.size(), "the mark") != magic) p.refuse(0, "the file does not begin with GGUF; expected a GGUF file");
  const auto version = p.number<std::uint32_t>("the version");
  if (version == 2 || version == 3) return version;
  if ((version & 0xffffU) == 0)
    p.refuse(4, "the numbers are big-endian; expected little-endian ones; convert the file");
  p.refuse(4, fmt::format("version {}; expected 2 or 3; write the file again with a newer llama.cpp", version));
}

std::uint64_t read_count(Parser& p, const char* what, std::uint64_t most) {
  const std::size_t begin = p.at();
  const auto count = p.number<std::uint64_t>(what);
  if (count > most) p.refuse(begin, fmt::format("{} {}; expected at most {}", count, what, most));
  return count;
}

Shape read_shape(Parser& p) {
  const std::size_t begin = p.at();
  const auto dims = p.number<std::uint32_t>("the number of dims");
  if (dims < 1 || dims > gguf_most_dims)
    p.refuse(begin, fmt::format("a tensor of {} dims; expected 1 to {}", dims, gguf_most_dims));
  std::vector<std::int64_t> extents(dims, 1);
  for (std::size_t i = dims; i-- > 0;) {
    const std::size_t at = p.at();
    const auto extent = p.number<std::uint64_t>("an extent");
    extents[i] = static_cast<std::int64_t>(extent);
    if (extent < 1 || !are_possible(extents))
      p.refuse(at, fmt::format("an extent of {}; expected at least 1, and at most 2^48 elements in all", extent));
  }
  return Shape(std::span<const std::int64_t>(extents));
}

GgufStorage read_storage(Parser& p, std::string_view name, const Shape& shape) {
  const std::size_t begin = p.at();
  const auto number = p.number<std::uint32_t>("the type of a tensor");
  switch (const auto storage = static_cast<GgufStorage>(number)) {
    case GgufStorage::f32:
    case GgufStorage::f16:
    case GgufStorage::i32:
    case GgufStorage::i64:
    case GgufStorage::f64:
    case GgufStorage::bf16:
      return storage;
    case GgufStorage::q8_0:
      if (shape[shape.dims() - 1] % q8_0_values != 0)
        p.refuse(begin, fmt::format("{} is stored as Q8_0 and has rows of {}; expected a multiple of {}",
                                    in_quotes(name), shape[shape.dims() - 1], q8_0_values));
      return storage;
  }
  const char* known = other_storage(number);
  p.refuse(begin, fmt::format("{} is stored as {}; expected F32, F16, BF16 or Q8_0; convert the file with "
                              "llama-quantize",
                              in_quotes(name), known == nullptr ? fmt::format("type {}", number) : known));
}

std::uint64_t read_alignment(const Parser& p, const GgufLayout& layout) {
  const GgufValue* value = layout.find("general.alignment");
  if (value == nullptr) return 32;
  const auto whole = value->type() == GgufType::u32 ? static_cast<std::uint64_t>(value->whole()) : 0;
  if (whole < 8 || whole > gguf_most_alignment || !std::has_single_bit(whole))
    p.refuse(value->at(), fmt::format("general.alignment is {}; expected a u32, a power of 2 from 8 to {}",
                                      value->is_whole() ? fmt::format("{}", value->whole()) : std::string("no number"),
                                      gguf_most_alignment));
  return whole;
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

GgufLayout parse_gguf(std::string_view content, const std::filesystem::path& path) {
  refuse_stand_in(content, path);
  Parser p(content, path);
  GgufLayout layout;
  layout.version = read_version(p);
  const std::uint64_t tensors = read_count(p, "tensors", gguf_most_tensors);
  const std::uint64_t keys = read_count(p, "keys", gguf_most_keys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::size_t begin = p.at();
    const std::string_view key = p.label("a key", gguf_longest_key);
    if (!layout.index_.try_emplace(key, layout.values.size()).second)
      p.refuse(begin, fmt::format("the key {} occurs twice; expected it once", in_quotes(key)));
    layout.values.emplace_back(key, p.value());
  }
  layout.alignment = read_alignment(p, layout);

  struct Placed {
    GgufLayout::Stored* stored;
    std::uint64_t offset, at;
  };
  std::vector<Placed> order;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::size_t begin = p.at();
    const std::string_view name = p.label("a tensor's name", gguf_longest_name);
    GgufLayout::Stored stored{.shape = read_shape(p)};
    stored.storage = read_storage(p, name, stored.shape);
    const std::size_t offset_at = p.at();
    const auto offset = p.number<std::uint64_t>("an offset");
    const auto [place, is_new] = layout.tensors.try_emplace(std::string(name), stored);
    if (!is_new) p.refuse(begin, fmt::format("the tensor {} occurs twice; expected it once", in_quotes(name)));
    order.push_back({&place->second, offset, offset_at});
  }

  const std::uint64_t data = padded(p.at(), layout.alignment);
  std::uint64_t end = 0;  // from the beginning of the data
  for (const Placed& each : order) {
    end = padded(end, layout.alignment);
    const std::uint64_t bytes =
        gguf_bytes(each.stored->storage, static_cast<std::uint64_t>(each.stored->shape.count()));
    if (each.offset != end)
      p.refuse(each.at, fmt::format("an offset of {}; expected {}, behind the tensor before it", each.offset, end));
    if (data > content.size() || bytes > content.size() - data || end > content.size() - data - bytes)
      p.refuse(each.at, fmt::format("a tensor of {} bytes from byte {} of the data on, which does not fit the file of "
                                    "{} bytes; the file was cut short",
                                    bytes, end, content.size()));
    each.stored->begin = data + end;
    end += bytes;
    each.stored->end = data + end;
  }
  const std::uint64_t most = std::max<std::uint64_t>(padded(data + end, layout.alignment), p.at());
  if (content.size() > most)
    p.refuse(static_cast<std::size_t>(most),
             fmt::format("{} bytes after the last tensor; expected none", content.size() - most));
  return layout;
}

}  // namespace trireme
