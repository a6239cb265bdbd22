// Inputs for the target that parses GGUF files.
#include <fmt/core.h>

#include <cstring>

#include "data/gguf/writer.h"
#include "tests/fuzz/seeds.h"

namespace trireme::fuzz {

namespace {

std::string zeros_for(const std::vector<GgufEntry>& entries) {
  std::uint64_t bytes = 0;
  for (const GgufEntry& e : entries)
    bytes += (gguf_bytes(e.storage, static_cast<std::uint64_t>(e.shape.count())) + 31) / 32 * 32;
  return std::string(static_cast<std::size_t>(bytes), '\1');
}

std::string file_of(const GgufValues& values, const std::vector<GgufEntry>& entries) {
  return gguf_header(values, entries) + zeros_for(entries);
}

GgufValues some_values() {
  GgufValues values;
  values.add("general.architecture", "llama");
  values.add("llama.block_count", std::uint32_t{2});
  values.add("x", 0.5F);
  values.add("y", true);
  values.add("tokens", std::vector<std::string>{"a", "bc"});
  values.add("types", std::vector<std::int32_t>{1, 3});
  return values;
}

const std::vector<GgufEntry> two = {{"a", GgufStorage::f32, {2, 3}}, {"q", GgufStorage::q8_0, {1, 64}}};

/// A file that is written number by number.
class Raw {
 public:
  explicit Raw(std::uint64_t tensors = 0, std::uint64_t keys = 0, std::uint32_t version = 3) {
    bytes_ = "GGUF";
    put(version), put(tensors), put(keys);
  }
  template <class T>
  Raw& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Raw& text(std::string_view text) {
    put(std::uint64_t{text.size()});
    bytes_.append(text);
    return *this;
  }
  Raw& tensor(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t storage,
              std::uint64_t offset) {
    text(name).put(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) put(extent);
    return put(storage).put(offset);
  }
  std::string end(std::size_t data = 0) const {
    std::string text = bytes_;
    text.resize((text.size() + 31) / 32 * 32 + data, '\0');
    return text;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

Raw key(std::uint32_t type) { return Raw(0, 1).text("k").put(type); }

}  // namespace

std::vector<Seed> gguf_seeds() {
  GgufValues aligned;
  aligned.add("general.alignment", std::uint32_t{32});
  std::vector<Seed> result = {{"some", file_of(some_values(), two)},
                              {"aligned", file_of(aligned, {{"s", GgufStorage::bf16, {1}}})},
                              {"empty", file_of({}, {})},
                              {"version2", Raw(0, 0, 2).bytes()},
                              {"integers", Raw(1).tensor("i", {4}, 26, 0).end(16)}};
  for (Malformed& bad : malformed_gguf()) result.push_back({"bad_" + bad.name, std::move(bad.content)});
  return result;
}

std::vector<Malformed> malformed_gguf() {
  const std::string good = file_of(some_values(), two);
  std::string big_endian = good;
  std::memcpy(big_endian.data() + 4, "\0\0\0\3", 4);
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const auto tensor = [](const std::vector<std::uint64_t>& extents, std::uint32_t storage, std::uint64_t offset,
                         std::size_t data) { return Raw(1).tensor("t", extents, storage, offset).end(data); };
  GgufValues alignment;
  alignment.add("general.alignment", std::uint32_t{12});
  return {
      {"empty", "", "byte 0:", "the mark of 4 bytes, and 0 are left"},
      {"other_magic", "GGML" + good.substr(4), "byte 0:", "does not begin with GGUF"},
      {"version", Raw(0, 0, 1).bytes(), "byte 4:", "version 1; expected 2 or 3"},
      {"big_endian", big_endian, "byte 4:", "the numbers are big-endian"},
      {"cut_header", good.substr(0, 20), "byte 16:", "keys of 8 bytes, and 4 are left"},
      {"many_tensors", Raw(huge).bytes(), "byte 8:", "18446744073709551615 tensors; expected at most"},
      {"many_keys", Raw(0, huge).bytes(), "byte 16:", "18446744073709551615 keys; expected at most"},
      {"long_key", Raw(0, 1).put(huge).bytes(), "byte 24:", "a key of 18446744073709551615 bytes"},
      {"empty_key", Raw(0, 1).text("").bytes(), "byte 24:", "expected printable UTF-8"},
      {"escape_in_key", Raw(0, 1).text("a\x1b[2J").bytes(), "byte 24:", "expected printable UTF-8"},
      {"same_key",
       Raw(0, 2).text("k").put(std::uint32_t{7}).put('\1').text("k").put(std::uint32_t{7}).put('\1').bytes(),
       "byte 38:", "the key \"k\" occurs twice"},
      {"type", key(13).bytes(), "byte 33:", "the type of a value is 13; expected 0 to 12"},
      {"boolean", key(7).put('\2').bytes(), "byte 37:", "a boolean is 2; expected 0 or 1"},
      {"cut_value", key(10).put(std::uint32_t{1}).bytes(), "byte 37:", "a value of 8 bytes, and 4 are left"},
      {"long_text", key(8).put(huge).bytes(), "byte 45:", "a text of 18446744073709551615 bytes, and 0 are left"},
      {"array_of_arrays", key(9).put(std::uint32_t{9}).put(std::uint64_t{1}).bytes(), "byte 37:", "an array of arrays"},
      {"long_array", key(9).put(std::uint32_t{4}).put(huge / 4 + 2).bytes(), "byte 41:", "expected at most 0"},
      {"array_of_long_texts", key(9).put(std::uint32_t{8}).put(std::uint64_t{1}).put(huge).bytes(),
       "byte 57:", "a text of 18446744073709551615 bytes"},
      {"alignment", file_of(alignment, {}), "byte ", "general.alignment is 12; expected a u32, a power of 2"},
      {"no_dims", tensor({}, 0, 0, 0), "byte 33:", "a tensor of 0 dims; expected 1 to 4"},
      {"many_dims", tensor({1, 1, 1, 1, 1}, 0, 0, 4), "byte 33:", "a tensor of 5 dims"},
      {"no_extent", tensor({0}, 0, 0, 0), "byte 37:", "an extent of 0"},
      {"overflow", tensor({1ULL << 32, 1ULL << 32}, 0, 0, 16), "byte 45:", "at most 2^48 elements in all"},
      {"wrapping", tensor({(1ULL << 62) + 1}, 0, 0, 16), "byte 37:", "an extent of 4611686018427387905"},
      {"quantized", tensor({256}, 12, 0, 144), "byte 45:", "\"t\" is stored as Q4_K; expected F32"},
      {"unknown_storage", tensor({4}, 1000, 0, 16), "byte 45:", "\"t\" is stored as type 1000"},
      {"ragged_blocks", tensor({33}, 8, 0, 64), "byte 45:", "rows of 33; expected a multiple of 32"},
      {"hole", tensor({4}, 0, 32, 48), "byte 49:", "an offset of 32; expected 0"},
      {"overlap", Raw(2).tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).end(64), "byte ", "an offset of 0; expected 32"},
      {"same_name", Raw(2).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).end(64), "byte ", "the tensor \"a\" occurs"},
      {"cut_data", good.substr(0, good.size() - 40), "byte ", "the file was cut short"},
      {"cut_before_data", Raw(1).tensor("t", {4}, 0, 0).bytes(), "byte 49:", "the file was cut short"},
      {"after", good + "x", fmt::format("byte {}:", good.size()), "1 bytes after the last tensor"},
  };
}

}  // namespace trireme::fuzz
