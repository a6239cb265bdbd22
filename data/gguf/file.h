// The GGUF format of llama.cpp (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian: a header with
// values by key (sizes and choices of the model, its tokenizer), a list of tensors, then their bytes, each aligned.
//
//   magic "GGUF", u32 version, u64 tensors, u64 keys
//   keys      a text (u64 length, bytes), u32 type, the value
//   tensors   a text, u32 dims, u64 extents (the fastest first: the reverse of a Shape), u32 type, u64 offset
//   padding to general.alignment, then the tensors one after another, each padded to it
//
// Tensors are read and written as f32, f16, bf16 and Q8_0, and read as f64, i32 and i64. Q8_0 keeps 32 neighbours of a
// row as whole numbers from -127 to 127 times one f16, 34 bytes: x becomes round(x / d) d with d = max |x| / 127. An
// error is at most d / 2, and d's rounding to f16 adds at most max |x| / 2048: together below 0.0045 max |x|.
//
//   const GgufFile file("model.gguf");
//   const Tensor w = file.read("blk.0.attn_q.weight");               // [out, in], f32 if it is stored as Q8_0
//   if (const GgufValue* name = file.layout().find("general.architecture")) fmt::print("{}\n", name->text());
// Read next: data/gguf/writer.h; models/gguf/architectures.h, which gives keys and tensors a meaning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/mapped_file.h"

namespace trireme {

/// Types of values, by their numbers in the file.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };
std::string_view name(GgufType type);  ///< "u32", "text"

/// How a tensor is stored, by its number in the file.
enum class GgufStorage : std::uint32_t { f32 = 0, f16 = 1, q8_0 = 8, i32 = 26, i64 = 27, f64 = 28, bf16 = 30 };
std::string_view name(GgufStorage storage);  ///< as in llama.cpp: "F32", "Q8_0"
DType stored_dtype(GgufStorage storage);     ///< of the tensor that read() gives; f32 for Q8_0

inline constexpr std::int64_t q8_0_values = 32;  ///< of a block
inline constexpr std::size_t q8_0_bytes = 34;    ///< of a block: an f16, then 32 whole numbers

/// A value of a file, as a view of its bytes.
class GgufValue {
 public:
  GgufValue(GgufType type, std::string_view bytes, std::size_t at) : type_(type), bytes_(bytes), at_(at) {}
  /// Of an array: its elements, `bytes` without their number.
  GgufValue(GgufType elements, std::uint64_t count, std::string_view bytes, std::size_t at)
      : type_(GgufType::array), elements_(elements), count_(count), bytes_(bytes), at_(at) {}

  GgufType type() const { return type_; }
  std::size_t at() const { return at_; }  ///< the byte of the file at which it begins
  bool is_whole() const;                  ///< whether it is a whole number
  bool is_number() const { return is_whole() || type_ == GgufType::f32 || type_ == GgufType::f64; }
  bool is_text() const { return type_ == GgufType::text; }

  // For a value of that type only; otherwise they throw ExitCode::internal.
  double number() const;                             ///< of a number; whole ones beyond 2^53 are rounded
  std::int64_t whole() const;                        ///< of a whole number; one above 2^63 - 1 is 2^63 - 1
  bool truth() const;                                ///< of a boolean
  std::string_view text() const;                     ///< any bytes
  std::string_view bytes() const { return bytes_; }  ///< of a text without its length, of an array its elements
  GgufType elements() const;                         ///< of an array: their type
  std::uint64_t count() const;                       ///< of an array
  /// Calls each(element), a value that is no array, for all in order.
  void for_each(const std::function<void(const GgufValue&)>& each) const;

 private:
  GgufType type_, elements_ = GgufType::u8;
  std::uint64_t count_ = 0;
  std::string_view bytes_;
  std::size_t at_;
};

/// What the header of a file says, checked against the file's size. Views of the content that was parsed.
struct GgufLayout {
  /// Where a tensor is.
  struct Stored {
    GgufStorage storage = GgufStorage::f32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;  ///< bytes, in the file
  };
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::vector<std::pair<std::string_view, GgufValue>> values;  ///< in the file's order
  std::map<std::string, Stored, std::less<>> tensors;

  const GgufValue* find(std::string_view key) const;  ///< null: there is no such key

 private:
  friend GgufLayout parse_gguf(std::string_view content, const std::filesystem::path& path);
  std::map<std::string_view, std::size_t> index_;
};

inline constexpr std::uint64_t gguf_most_keys = 1 << 16, gguf_most_tensors = 1 << 16;
inline constexpr std::size_t gguf_longest_key = 65535, gguf_longest_name = 64;
inline constexpr int gguf_most_dims = 4;
inline constexpr std::uint64_t gguf_most_alignment = std::uint64_t{1} << 20;

/// Parses the content of `path`. Throws ExitCode::data, with file and byte, for another version or byte order, a count,
/// length or offset beyond the end of the file, a key or tensor that occurs twice, an unknown type, arrays of arrays,
/// tensors that are stored in another way than GgufStorage, have sizes that overflow, or do not follow one another.
GgufLayout parse_gguf(std::string_view content, const std::filesystem::path& path);

/// A GGUF file, mapped into memory. The header is checked before anything is read.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);  ///< throws as parse_gguf()

  const std::filesystem::path& path() const { return file_.path(); }
  const GgufLayout& layout() const { return layout_; }
  std::uint64_t fingerprint() const;  ///< of the header and the file's size
  /// Null: there is no such tensor.
  const GgufLayout::Stored* find(std::string_view name) const;
  Tensor read(std::string_view name) const;  ///< a copy; throws ExitCode::data if there is no such tensor
  /// Fills `into`, dense, on the host and of the stored_dtype() of the tensor's storage, with the rectangle that begins
  /// at `start`. Only its pages of the file are read.
  void read(std::string_view name, const Shape& start, Tensor& into) const;
  /// Throws ExitCode::data if the file has become shorter since it was opened. Call it after reading.
  void require_whole() const { file_.require_whole(); }

 private:
  const GgufLayout::Stored& require_tensor(std::string_view name) const;

  MappedFile file_;
  GgufLayout layout_;
};

/// Bytes of `elements` elements in a storage; a whole number of blocks for Q8_0.
std::uint64_t gguf_bytes(GgufStorage storage, std::uint64_t elements);

}  // namespace trireme
