// Whatever a text says, a parser of JSON may allocate at most 128 MiB beyond it, and any other parser 64 MiB. This
// program counts the bytes of every operator new. For these inputs a naive parser would allocate ten to a hundred times
// their size.
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "core/error.h"
#include "core/hash.h"
#include "data/bpe_tokenizer.h"
#include "data/gguf/file.h"
#include "data/hugging_face.h"
#include "data/json.h"
#include "data/npy.h"
#include "data/npy_layout.h"
#include "data/safetensors.h"
#include "data/tiktoken.h"
#include "data/tokenizer.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/fuzz/seeds.h"

namespace {

std::atomic<std::int64_t> in_use{0}, peak{0};

void* counted(std::size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const std::int64_t now = in_use += static_cast<std::int64_t>(::malloc_usable_size(memory));
  if (now > peak) peak = now;
  return memory;
}

void uncounted(void* memory) {
  if (memory == nullptr) return;
  in_use -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete[](void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncounted(memory); }

using namespace trireme;

namespace {

constexpr std::int64_t mebibyte = 1 << 20;

std::string repeated(std::size_t times, const std::function<void(std::string&, std::size_t)>& append) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) append(text, i);
  return text;
}

/// Runs `parse`, which may refuse the text, and checks its peak allocation: at most `most` MiB.
void check_bounded(const char* what, const std::function<void()>& parse, std::int64_t most = 128) {
  const std::int64_t before = in_use;
  peak = before;
  std::string outcome = "accepted";
  try {
    parse();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    outcome = error.what();
  }
  const std::int64_t used = peak - before;
  CHECK_MESSAGE(used <= most * mebibyte, what, ": ", used / mebibyte, " MiB; ", outcome.substr(0, 300));
}

std::string numbers(std::size_t count) {
  return "[" + repeated(count, [](auto& t, auto) { t += "0,"; }) + "0]";
}
std::string keys(std::size_t count) {
  return "{" + repeated(count, [](auto& t, auto i) { t += fmt::format("\"{}\":0,", i); }) + "\"x\":0}";
}

}  // namespace

TEST_CASE("hostile JSON takes at most 128 MiB") {
  const std::size_t million = 1'000'000;
  const std::vector<std::pair<const char*, std::string>> texts = {
      {"numbers", numbers(10 * million)},
      {"keys", keys(4 * million)},
      {"empty arrays", "[" + repeated(10 * million, [](auto& t, auto) { t += "[],"; }) + "0]"},
      {"small objects", "[" + repeated(3 * million, [](auto& t, auto) { t += "{\"a\":{}},"; }) + "0]"},
      {"strings", "[" + repeated(5 * million, [](auto& t, auto) { t += "\"\","; }) + "0]"},
      {"a long string", "[\"" + std::string(40 * million, 'a') + "\"]"},
      {"strings of the largest size",
       "[" + repeated(5, [](auto& t, auto) { t += "\"" + std::string(json_longest_value - 100, 'a') + "\","; }) + "0]"},
      {"an open string", "[\"" + std::string(40 * million, 'a')},
      {"blanks", std::string(40 * million, '\n') + "x"},
      {"a number", std::string(40 * million, '1')},
      {"nesting", std::string(40 * million, '[')}};
  for (const auto& [what, text] : texts)
    check_bounded(what, [&, text = std::string_view(text)] { parse_json(text, "file"); });
}

TEST_CASE("hostile tokenizers, safetensors and manifests take at most 128 MiB") {
  const std::string head = R"({"format":"trireme-tokenizer","version":1,"kind":"bpe",)";
  const auto tokens = [](std::size_t n) {
    return repeated(n, [](auto& t, auto i) { t += fmt::format("\"{:x}\",", i); });
  };
  const std::string many_tokens = head + "\"merges\":[],\"tokens\":[" + tokens(3'000'000) + "\"\"]}";
  check_bounded("tokens", [&] { parse_tokenizer(many_tokens, "file"); });
  const std::string many_merges =
      head + "\"tokens\":[\"a\"],\"merges\":[" + repeated(3'000'000, [](auto& t, auto) { t += "\"a a\","; }) + "\"\"]}";
  check_bounded("merges", [&] { parse_tokenizer(many_merges, "file"); });
  const std::string vocab = keys(3'000'000);
  check_bounded("vocab.json", [&] { parse_hugging_face(vocab, "vocab.json", "", "merges.txt"); });
  const std::string far = R"({"a":4294967295})";
  check_bounded("an id far away", [&] { parse_hugging_face(far, "vocab.json", "", "merges.txt"); });

  const std::string model = "{\"model\":{\"type\":\"BPE\",\"vocab\":";
  const std::string their_vocab = model + vocab + ",\"merges\":[]}}";
  check_bounded("vocab of tokenizer.json", [&] { parse_hugging_face_json(their_vocab, "file"); });
  const std::string their_merges =
      model + "{\"a\":0},\"merges\":[" + repeated(3'000'000, [](auto& t, auto) { t += "[\"a\",\"a\"],"; }) + "0]}}";
  check_bounded("merges of tokenizer.json", [&] { parse_hugging_face_json(their_merges, "file"); });
  const std::string added = "{\"added_tokens\":[" +
                            repeated(1'000'000, [](auto& t, auto i) { t += fmt::format("{{\"id\":{}}},", i); }) + "0]}";
  check_bounded("added tokens", [&] { parse_hugging_face_json(added, "file"); });
  const std::string merge_ids = R"({"format":"trireme-tokenizer","version":1,"kind":"hugging-face","settings":{},)"
                                R"("tokens":["a"],"merge_ids":[)" +
                                repeated(9'000'000, [](auto& t, auto) { t += "0,"; }) + "0]}";
  check_bounded("merge ids", [&] { parse_tokenizer(merge_ids, "file"); });
  // All bytes, then tokens of which each is made of two others in as many ways as it has letters; "QUFB" is AAA.
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string ways =
      repeated(256,
               [&](auto& t, auto i) { t += fmt::format("{}{}== {}\n", alphabet[i >> 2], alphabet[(i & 3) << 4], i); }) +
      repeated(2'000, [](auto& t, auto i) {
        for (std::size_t k = 0; k <= i; ++k) t += "QUFB";
        t += fmt::format(" {}\n", 256 + i);
      });
  check_bounded("ranks", [&] { parse_tiktoken(ways, "o200k_base", "file"); });

  const std::string tiny = fuzz::safetensors_file("{" +
                                                      repeated(280'000,
                                                               [](auto& t, auto i) {
                                                                 t +=
                                                                     fmt::format(R"("{:x}":{{"dtype":"U8","shape":[0],)"
                                                                                 R"("data_offsets":[0,0]}},)",
                                                                                 i);
                                                               }) +
                                                      R"("x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                                                  "x");
  check_bounded("tiny tensors", [&] { parse_safetensors(tiny, "file"); });
  const std::string metadata = fuzz::safetensors_file(
      "{\"__metadata__\":{" + repeated(1'000'000, [](auto& t, auto i) { t += fmt::format("\"{:x}\":\"\",", i); }) +
          "\"x\":\"\"}}",
      "");
  check_bounded("metadata", [&] { parse_safetensors(metadata, "file"); });

  using namespace checkpoint::manifest_text;
  const auto manifest = [](const std::string& rest) {
    return fmt::format("{}{}{}{}", before_checksum, hexadecimal(hash_bytes(rest)), after_checksum, rest);
  };
  const std::string start = "\"format\":\"trireme checkpoint 1\",";
  const std::string run = manifest(start + "\"run\":" + keys(3'000'000) + "}");
  check_bounded("a manifest's texts", [&] { checkpoint::parse_manifest(run, "file"); });
  const std::string pieces = manifest(
      start + R"("files":[{"name":"a","bytes":8,"chunks":"0000000000000000"}],"tensors":{"x":{"dtype":"u8",)" +
      R"("shape":[],"pieces":[)" +
      repeated(500'000, [](auto& t, auto) { t += R"({"file":0,"offset":0,"start":[],"shape":[]},)"; }) + "0]}}}");
  check_bounded("pieces of one tensor", [&] { checkpoint::parse_manifest(pieces, "file"); });
}

TEST_CASE("a hostile GGUF file takes at most 64 MiB") {
  const auto number = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto text = [&](const std::string& t) { return number(std::uint64_t{t.size()}) + t; };
  const auto file = [&](std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + number(std::uint32_t{3}) + number(tensors) + number(keys);
  };
  const std::string keys = file(0, gguf_most_keys) + repeated(gguf_most_keys, [&](auto& t, std::size_t i) {
                             t += text(std::to_string(i)) + number(std::uint32_t{0}) + '\1';
                           });
  check_bounded(
      "keys", [&] { parse_gguf(keys, "file"); }, 64);
  const std::string tensors = file(gguf_most_tensors, 0) + repeated(gguf_most_tensors, [&](auto& t, std::size_t i) {
                                t += text(std::string(50, 'a') + std::to_string(i)) + number(std::uint32_t{1}) +
                                     number(std::uint64_t{1}) + number(std::uint32_t{0}) +
                                     number(std::uint64_t{32 * i});
                              });
  const std::string whole = tensors + std::string(32 * gguf_most_tensors + 32, '\0');
  check_bounded(
      "tensors", [&] { parse_gguf(whole, "file"); }, 64);
  const std::string texts = file(0, 1) + text("k") + number(std::uint32_t{9}) + number(std::uint32_t{8}) +
                            number(std::uint64_t{4'000'000}) + std::string(8 * 4'000'000, '\0');
  check_bounded(
      "an array of empty texts", [&] { parse_gguf(texts, "file"); }, 64);
}

TEST_CASE("a hostile archive of arrays takes at most 64 MiB") {
  std::string text, directory;
  const std::string content = npy_layout::header_of(DType::f32, {0});
  for (std::size_t i = 0; i < npz_most_entries; ++i) {
    const npy_layout::ArchivedFile file{.name = std::string(200, 'a') + std::to_string(i) + ".npy",
                                        .begin = static_cast<std::uint32_t>(text.size()),
                                        .bytes = static_cast<std::uint32_t>(content.size()),
                                        .crc = crc32(content)};
    text += npy_layout::local_header(file) + content;
    directory += npy_layout::directory_entry(file);
  }
  const auto begin = static_cast<std::uint32_t>(text.size());
  text += directory + npy_layout::directory_end(npz_most_entries, directory.size(), begin);
  check_bounded(
      "arrays with long names", [&] { parse_npz(text, "file"); }, 64);
}
