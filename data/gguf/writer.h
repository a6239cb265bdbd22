// Writes a GGUF file, version 3: data/gguf/file.h describes the format.
//
//   GgufValues values;
//   values.add("general.architecture", "llama");
//   values.add("llama.block_count", std::uint32_t{16});
//   GgufWriter file("model.gguf", values, {{"token_embd.weight", GgufStorage::q8_0, {32000, 512}}});
//   file.write(table);  // any floating dtype, [32000, 512]
//   file.commit();
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io.h"
#include "core/tensor.h"
#include "data/gguf/file.h"

namespace trireme {

/// The keys and values of a file that is written, in the order in which they are added. A key may be added once.
class GgufValues {
 public:
  /// Adds a key with its value. Throws ExitCode::internal if the key is there already.
  void add(std::string_view key, std::uint32_t value);
  void add(std::string_view key, std::int32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const std::int32_t> values);
  void add(std::string_view key, std::span<const float> values);
  /// A value of another file, as it is there.
  void add(std::string_view key, const GgufValue& value);

  bool contains(std::string_view key) const { return keys_.find(key) != keys_.end(); }  ///< whether it was added
  std::size_t count() const { return keys_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType type, std::size_t count);
  template <class T>
  void put(T value);
  void put_text(std::string_view text);

  std::set<std::string, std::less<>> keys_;
  std::string bytes_;
};

/// A tensor that will be written.
struct GgufEntry {
  std::string name;
  GgufStorage storage = GgufStorage::f32;  ///< f32, f16, bf16 or Q8_0
  Shape shape;                             ///< 1 to 4 dims; for Q8_0 the last is a multiple of 32
};

/// The beginning of a file of these tensors, padded to the first one's place.
std::string gguf_header(const GgufValues& values, const std::vector<GgufEntry>& entries);

/// The bytes of a tensor [.., 32 n] in Q8_0, from any floating dtype: for each 32 neighbours d = max |x| / 127 in f16,
/// and round(x / d), halves away from zero. Throws ExitCode::data for infinity, NaN, and numbers beyond
/// f16's range times 127, naming the tensor.
std::vector<std::byte> to_q8_0(const Tensor& x, std::string_view name);

/// Writes a file tensor by tensor, in the order announced; it appears under its name at commit().
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufValues& values, const std::vector<GgufEntry>& entries);
  void write(const Tensor& tensor);  ///< the next entry; a floating dtype, which is converted
  void commit();                     ///< call it after the last tensor: the file gets its name. Throws ExitCode::io
  std::uint64_t bytes() const { return file_->bytes_written(); }

 private:
  std::vector<GgufEntry> entries_;
  std::size_t next_ = 0;
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace trireme
