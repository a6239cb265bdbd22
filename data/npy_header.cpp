// The header of a .npy file, read and written. A header that is read is not trusted: every number is checked before it
// is used.
#include "data/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "core/extents.h"
#include "data/npy_layout.h"
#include "data/utf8.h"

namespace trireme {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::size_t most_header_bytes = 64 << 10;

constexpr std::array<std::pair<std::string_view, DType>, 6> npy_dtypes = {{{"<f8", DType::f64},
                                                                           {"<f4", DType::f32},
                                                                           {"<f2", DType::f16},
                                                                           {"<i8", DType::i64},
                                                                           {"<i4", DType::i32},
                                                                           {"|u1", DType::u8}}};

/// Reads the Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class DictionaryParser {
 public:
  DictionaryParser(std::string_view text, std::size_t begin, const std::filesystem::path& path)
      : text_(text), begin_(begin), path_(path) {}

  NpyHeader parse() {
    expect('{');
    while (!take('}')) {
      const std::size_t at = position();
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !dtype_) {
        dtype_ = dtype();
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = boolean();
      } else if (key == "shape" && !shape_) {
        shape_ = shape();
      } else {
        refuse(at, fmt::format("the key {} is unknown or occurs twice; expected descr, fortran_order and shape once",
                               in_quotes(key)));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) refuse(position(), "text after the dictionary; expected only spaces");
    if (!dtype_ || !fortran_ || !shape_)
      refuse(begin_, "the dictionary lacks descr, fortran_order or shape; expected all three");
    return {.dtype = *dtype_, .shape = *shape_, .fortran_order = *fortran_};
  }

 private:
  [[noreturn]] void refuse(std::size_t byte, const std::string& what) const {
    fail(ExitCode::data, "npy", "{} byte {}: {}", path_.string(), byte, what);
  }
  std::size_t position() const { return begin_ + at_; }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(position(), fmt::format("not the header of an array; expected '{}'", c));
  }

  std::string_view quoted() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') refuse(position(), "expected a text in quotes");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse(position(), "a text that does not end; expected a quote");
    const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return text;
  }

  DType dtype() {
    skip_spaces();
    const std::size_t at = position();
    if (at_ < text_.size() && text_[at_] == '[')
      refuse(at, "a structured array; expected one of numbers; save its fields one by one");
    const std::string_view name = quoted();
    for (const auto& [text, dtype] : npy_dtypes)
      if (text == name) return dtype;
    const bool big_endian = name.starts_with('>');
    refuse(at, fmt::format("dtype {}; expected one of <f8, <f4, <f2, <i8, <i4, |u1; {}", in_quotes(name),
                           big_endian ? "change the byte order: x.astype(x.dtype.newbyteorder('<'))"
                                      : "convert the array: x.astype('float32')"));
  }

  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    refuse(position(), "fortran_order is neither True nor False; expected one of them");
  }

  std::int64_t extent() {
    skip_spaces();
    const std::size_t at = position();
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_, ++digits) {
      value = value * 10 + (text_[at_] - '0');
      if (value > most_elements) refuse(at, "an extent of more than 2^48; expected at most that many elements");
    }
    if (digits == 0) refuse(at, "the shape is malformed; expected whole numbers");
    return value;
  }

  /// (), (3,), (3, 4) and (3, 4,).
  Shape shape() {
    expect('(');
    const std::size_t at = position();
    std::vector<std::int64_t> extents;
    while (!take(')')) {
      if (extents.size() == Shape::max_dims)
        refuse(at, fmt::format("more than {} dims; expected at most that many", Shape::max_dims));
      extents.push_back(extent());
      if (!are_possible(extents)) refuse(at, "a shape too large to exist; expected at most 2^48 elements");
      const bool comma = take(',');
      if (!comma && extents.size() == 1) refuse(position(), "the shape is no tuple; expected a comma after one extent");
      if (!comma) {
        expect(')');
        break;
      }
    }
    return Shape(std::span<const std::int64_t>(extents));
  }

  std::string_view text_;
  std::size_t begin_, at_ = 0;  // of the text in the file; in the text
  const std::filesystem::path& path_;
  std::optional<DType> dtype_;
  std::optional<bool> fortran_;
  std::optional<Shape> shape_;
};

}  // namespace

NpyHeader parse_npy(std::string_view content, const std::filesystem::path& path, std::size_t first) {
  static_assert(std::endian::native == std::endian::little, "arrays are little-endian");
  const auto refuse = [&](std::size_t byte, const std::string& what) {
    fail(ExitCode::data, "npy", "{} byte {}: {}", path.string(), first + byte, what);
  };
  if (!content.starts_with(npy_magic) || content.size() < 10)
    refuse(0, "not an array of NumPy; expected a file that np.save wrote");
  const int version = static_cast<unsigned char>(content[6]), revision = static_cast<unsigned char>(content[7]);
  if (version < 1 || version > 3 || revision != 0)
    refuse(6, fmt::format("version {}.{} of the format; expected 1.0, 2.0 or 3.0", version, revision));
  const std::size_t begin = version == 1 ? 10 : 12;
  if (content.size() < begin) refuse(content.size(), "the file ends here, inside the header's length");
  std::size_t bytes = 0;
  std::memcpy(&bytes, content.data() + 8, begin - 8);
  const std::size_t most = std::min(content.size() - begin, most_header_bytes);
  if (bytes > most)
    refuse(8,
           fmt::format("the header claims {} bytes; expected at most {} in a file of {}", bytes, most, content.size()));
  NpyHeader header = DictionaryParser(content.substr(begin, bytes), first + begin, path).parse();
  header.data_begin = begin + bytes;
  const std::uint64_t needed = static_cast<std::uint64_t>(header.shape.count()) * size_of(header.dtype);
  if (content.size() - header.data_begin != needed)
    refuse(header.data_begin,
           fmt::format("{} bytes of elements; expected {} for {} {}", content.size() - header.data_begin, needed,
                       name(header.dtype), header.shape));
  return header;
}

namespace npy_layout {

std::string header_of(DType dtype, const Shape& extents) {
  const auto found =
      std::find_if(npy_dtypes.begin(), npy_dtypes.end(), [&](const auto& entry) { return entry.second == dtype; });
  if (found == npy_dtypes.end())
    fail(ExitCode::usage, "npy", "NumPy has no {}; expected f64, f32, f16, i64, i32 or u8; cast(x, DType::f32) first",
         name(dtype));
  std::string shape;
  for (const std::int64_t extent : extents) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
  if (extents.dims() == 1) shape += ',';
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", found->first, shape);
  constexpr std::size_t begin = 10, alignment = 64;
  text.resize((begin + text.size() + 1 + alignment - 1) / alignment * alignment - begin - 1, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  std::string result = std::string(npy_magic) + '\1' + '\0';
  result.append(reinterpret_cast<const char*>(&length), sizeof length);
  return result + text;
}

}  // namespace npy_layout

}  // namespace trireme
