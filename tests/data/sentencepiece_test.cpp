// Models of SentencePiece against its library: tests/golden/sentencepiece.json has small models, texts, and what the
// library makes of them (tests/golden/make_sentencepiece.py).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/hugging_face.h"
#include "data/sentencepiece.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const json& golden() {
  static const json file = json::parse(read_file("tests/golden/sentencepiece.json"));
  return file;
}

std::string model_file(std::string_view name) {
  for (const json& entry : golden()["models"])
    if (entry["name"] == json(name)) return bytes_of_hex(entry["file"]);
  return {};
}

std::shared_ptr<const Tokenizer> tokenizer_of(std::string_view name) {
  return make_sentence_piece(model_file(name), "tokenizer.model", {});
}

/// A length in a protocol buffer.
std::string varint(std::size_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

void check_texts(const Tokenizer& tokenizer, const json& entry) {
  for (const json& expected : entry["texts"]) {
    const std::string text = expected["text"];
    CAPTURE(text);
    const Ids ids = expected["ids"];
    CHECK(tokenizer.encode(text) == ids);
    CHECK(tokenizer.decode(ids) == expected.value("decoded", text));
  }
}

}  // namespace

TEST_CASE("models of SentencePiece give the library's ids and texts, also after they were saved") {
  for (const json& entry : golden()["models"]) {
    CAPTURE(entry["name"].get<std::string>());
    const auto tokenizer = tokenizer_of(entry["name"].get<std::string>());
    check_texts(*tokenizer, entry);
    const auto saved = parse_tokenizer(tokenizer->to_json(), "saved");
    CHECK(saved->hash() == tokenizer->hash());
    check_texts(*saved, entry);
  }
}

TEST_CASE("long texts give the library's ids too: sums of scores grow beyond 100,000") {
  std::uint32_t state = 1;
  std::string text;
  for (int i = 0; i < 200'000; ++i) {  // as in tests/golden/make_sentencepiece.py
    state = state * 1664525U + 1013904223U;
    text += "etaoin shrdlu "[(state >> 16) % 14];
  }
  for (const json& entry : golden()["models"]) {
    CAPTURE(entry["name"].get<std::string>());
    const Ids ids = tokenizer_of(entry["name"].get<std::string>())->encode(text);
    std::uint32_t hash = 0;
    for (const std::int32_t id : ids) hash = hash * 31U + static_cast<std::uint32_t>(id);
    CHECK(ids.size() == entry["long"]["ids"].get<std::size_t>());
    CHECK(hash == entry["long"]["hash"].get<std::uint32_t>());
  }
}

TEST_CASE("plain models of merges are written as tokenizer.json, and the others are not") {
  for (const json& entry : golden()["models"]) {
    const auto name = entry["name"].get<std::string>();
    CAPTURE(name);
    const auto tokenizer = tokenizer_of(name);
    if (name == "llama2" || name == "gemma") {
      check_texts(*parse_hugging_face_json(hugging_face_json(*tokenizer), "tokenizer.json"), entry);
    } else {
      CHECK(says(error_of([&] { hugging_face_json(*tokenizer); }, ExitCode::usage), "SentencePiece"));
    }
  }
}

TEST_CASE("a folder with tokenizer.model says what is put around a text, and which tokens were added") {
  const TempFolder folder;
  write_plainly(folder / "tokenizer.model", model_file("llama2"));
  const auto plain = load_bpe(folder.path());
  const Ids ids = plain->encode("word");
  Ids with_begin = ids;
  with_begin.insert(with_begin.begin(), 1);
  CHECK(plain->encode_with_special("word") == with_begin);
  CHECK(plain->end_of_text() == 2);

  const std::int32_t next = plain->vocab_size();
  write_plainly(folder / "added_tokens.json", "{\"<|im_start|>\": " + std::to_string(next) + "}");
  write_plainly(
      folder / "tokenizer_config.json",
      R"({"add_bos_token": false, "add_eos_token": true, "added_tokens_decoder": {"1": {"content": "<s>"}, ")" +
          std::to_string(next + 1) + R"(": {"content": "<more>", "special": false}}})");
  const auto extended = load_sentence_piece(folder.path());
  CHECK(extended->vocab_size() == next + 2);
  CHECK(extended->encode_with_special("<|im_start|><more>") == Ids{next, next + 1, 2});

  write_plainly(folder / "tokenizer.model", model_file("unigram"));
  CHECK(says(error_of([&] { load_bpe(folder.path()); }, ExitCode::data), "<|im_start|>"));
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD, as in the library") {
  const auto tokenizer = tokenizer_of("unigram_kept");
  CHECK(tokenizer->encode("a\xFFz\xC3") == tokenizer->encode("a\xEF\xBF\xBDz\xEF\xBF\xBD"));
}

TEST_CASE("malformed models of SentencePiece are refused") {
  const std::string file = model_file("unigram");
  CHECK(says(error_of([&] { make_sentence_piece("", "m", {}); }, ExitCode::data), "no pieces"));
  CHECK(says(error_of([&] { make_sentence_piece("not a protocol buffer", "m", {}); }, ExitCode::data), "malformed"));
  CHECK(says(error_of([&] { make_sentence_piece(file.substr(0, file.size() / 2), "m", {}); }, ExitCode::data), "m: "));
  CHECK(says(error_of([&] { make_sentence_piece(file + file, "m", {}); }, ExitCode::data), "repeats an earlier one"));
  // Each of these can be made of two others in as many ways as it has letters.
  std::string runs;
  for (std::size_t letters = 1; letters <= 900; ++letters) {
    const std::string text = "\n" + varint(letters) + std::string(letters, 'a');
    runs += "\n" + varint(text.size()) + text;
  }
  runs += std::string("\n\x05\n\x01u\x18\x02", 7) + "\x12\x02\x18\x02" + "\x1a\x02\x20" + std::string(1, '\0');
  CHECK(says(error_of([&] { make_sentence_piece(runs, "m", {}); }, ExitCode::data), "in ways of more than"));
  const std::string piece = "\n\x05\n\x03xyz";  // a piece without a score
  CHECK(says(error_of([&] { make_sentence_piece(piece, "m", {}); }, ExitCode::data), "0 unknown pieces"));
  CHECK(says(error_of([&] { load_sentence_piece("/nowhere/tokenizer.model"); }, ExitCode::usage), "does not exist"));
}
