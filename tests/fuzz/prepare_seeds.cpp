// Seeds for the targets of tests/fuzz/prepare_targets.cpp.

#include "data/npy.h"
#include "data/prepare/prepare_state.h"
#include "tests/fuzz/seeds.h"

namespace trireme::fuzz {

namespace {

std::string little_endian(std::uint32_t number, int bytes = 4) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xFF);
  return text;
}

/// RFC 1952, with one block that is stored as it is.
std::string gzip_file(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11) + little_endian(size, 2) + little_endian(~size, 2) + text +
         little_endian(crc32(text)) + little_endian(size);
}

/// RFC 8878, with one raw block.
std::string zstd_file(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  return std::string("\x28\xb5\x2f\xfd\x20", 5) + little_endian(size, 1) + little_endian(size << 3 | 1, 3) + text;
}

std::string llmc_file(std::uint32_t count) {
  std::string file = little_endian(20240520) + little_endian(1) + little_endian(count);
  file.resize(1024);
  return file + std::string(2 * std::size_t{count}, '\1');
}

}  // namespace

std::vector<Seed> prepare_seeds(std::string_view target) {
  if (target == "records")
    return {{"text", std::string(1, '\0') + "a text\nof lines \xC3\xBC"},
            {"jsonl", "\1{\"text\":\"a\",\"id\":1}\n\n{\"id\":[{}],\"text\":\"b\\n\\u00fc\"}"},
            {"csv", "\2id,text\r\n1,\"a \"\"b\"\"\nc\"\r\n2,plain\n"},
            {"tsv", "\3\xEF\xBB\xBFtext\nfirst\n\"\"\n"},
            {"csv_columns", "\2id,text\n1\n"}};
  if (target == "compressed")
    return {{"gzip", gzip_file("some text")},
            {"gzip_twice", gzip_file("some ") + gzip_file("text")},
            {"zstd", zstd_file("some text")},
            {"zstd_twice", zstd_file("some ") + zstd_file("text")}};
  if (target == "prepare_state") {
    PrepareState state;
    state.job = {{"--data", "texts"}, {"--dedup", "on"}};
    state.input = {.file = 1, .offset = 1000, .line = 7, .inside = true, .hash = 12345};
    return {{"new", to_text({})}, {"begun", to_text(state)}};
  }
  if (target == "mixture") return {{"one", "text.txt"}, {"three", "web:0.7,a:b/books:0.2,code:1e-1"}};
  if (target == "llmc") return {{"ten", llmc_file(10)}, {"none", llmc_file(0)}};
  return {};
}

}  // namespace trireme::fuzz
