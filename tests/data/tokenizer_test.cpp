// Character and byte tokenizers, UTF-8, and tokenizer files.
#include "data/tokenizer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/bpe_tokenizer.h"
#include "data/bpe_train.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/hugging_face.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

CharTokenizer chars_of(std::string_view text) { return CharTokenizer::from_texts({&text, 1}); }

// Text that is hard for tokenizers: combining marks, emoji joined by U+200D, right-to-left, NUL, every kind of line
// end.
constexpr char kTrickyText[] =
    "e\u0301 \U0001F469\u200D\U0001F4BB\u05E9\u05DC\u05D5\u05DD \0x\r\n\t\u2028\u00A0  I'll 3\u00B2 \uFEFF!";
const std::string kTricky(kTrickyText, sizeof kTrickyText - 1);

}  // namespace

TEST_CASE("UTF-8: every code point survives, and nothing but UTF-8 is accepted") {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text;
    append_utf8(text, value);
    const auto character = decode_utf8(text, 0);
    REQUIRE(character.has_value());
    REQUIRE(character->value == value);
    REQUIRE(character->bytes == text.size());
  }
  for (const std::string_view wrong :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xF0\x9F\x98", "\xC3\x28"}) {
    CHECK_FALSE(decode_utf8(wrong, 0).has_value());
    const std::string text = "0123456789" + std::string(wrong) + "abcdefgh";
    CHECK(valid_utf8_prefix(text) == 10);
  }
}

TEST_CASE("Utf8Stream prints characters when they are whole, whatever the pieces") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    const std::string text = random_text(random, 40);
    Utf8Stream stream;
    std::string printed;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t piece = std::min<std::size_t>(1 + random() % 3, text.size() - at);
      printed += stream.push(std::string_view(text).substr(at, piece));
      CHECK(valid_utf8_prefix(printed) == printed.size());
      at += piece;
    }
    CHECK(printed + stream.finish() == text);
  }
  Utf8Stream stream;
  CHECK(stream.push("a\xE2\x82") == "a");
  CHECK(stream.push("b\xFF") == "\uFFFDb\uFFFD");  // what was held back can no longer become a character
  CHECK(stream.push("\xF0\x9F") == "");
  CHECK(stream.finish() == "\uFFFD");
  CHECK(stream.finish() == "");
}

TEST_CASE("char: sorted code points, round trip, and the vocabulary of a known text") {
  const CharTokenizer tokenizer = chars_of("hello, w\u00F6rld\n");
  CHECK(tokenizer.vocab_size() == 11);
  CHECK(tokenizer.encode("\n ,\u00F6h") == std::vector<std::int32_t>{0, 1, 2, 10, 5});
  CHECK(tokenizer.decode(std::vector<std::int32_t>{10, 8, 0}) == "\u00F6r\n");
  CHECK_FALSE(tokenizer.end_of_text().has_value());
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    const std::string text = random_text(random, 200) + kTricky;
    const CharTokenizer own = chars_of(text);
    CHECK(own.decode(own.encode(text)) == text);
  }
}

TEST_CASE("char: an unknown character is named with its code point and byte offset") {
  const CharTokenizer tokenizer = chars_of("abc\u00E9");
  const Caught unknown = caught([&] { tokenizer.encode("ab\u00E9\u20AC"); });
  CHECK(unknown.code == ExitCode::data);
  CHECK(unknown.has("'\u20AC' (U+20AC) at byte 4"));
  CHECK(caught([&] { tokenizer.encode("ab\n"); }).has("U+000A at byte 2"));
  CHECK(caught([&] { tokenizer.encode("a\xFF"); }).has("byte 1 (0xFF) is not UTF-8"));
  CHECK(caught([&] { chars_of("x\xC3"); }).code == ExitCode::data);
  CHECK(caught([&] { chars_of(""); }).code == ExitCode::data);
}

TEST_CASE("decode refuses ids outside the vocabulary and names the index") {
  const ByteTokenizer tokenizer;
  for (const std::int32_t id : {-1, 256, 2'000'000'000}) {
    const Caught outside = caught([&] { tokenizer.decode(std::vector<std::int32_t>{1, 2, id}); });
    CHECK(outside.code == ExitCode::data);
    CHECK(outside.has(fmt::format("token {} at index 2", id)));
  }
}

TEST_CASE("byte: any bytes round trip") {
  const ByteTokenizer tokenizer;
  std::mt19937_64 random(2);
  const std::string bytes = random_bytes(random, 10'000);
  CHECK(tokenizer.encode("\xFF\n") == std::vector<std::int32_t>{255, 10});
  CHECK(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
}

TEST_CASE("save and load give an equal tokenizer; the hash is the identity") {
  const TempFolder folder;
  const CharTokenizer chars = chars_of(kTricky), others = chars_of(kTricky + "Q");
  chars.save(folder / "char.json");
  const auto loaded = load_tokenizer(folder / "char.json");
  CHECK(loaded->name() == "char");
  CHECK(loaded->hash() == chars.hash());
  CHECK(loaded->encode(kTricky) == chars.encode(kTricky));
  CHECK(chars.hash() != others.hash());
  ByteTokenizer().save(folder / "byte.json");
  CHECK(load_tokenizer(folder / "byte.json")->hash() == ByteTokenizer().hash());
  CHECK(ByteTokenizer().hash() != chars.hash());
}

TEST_CASE("malformed tokenizer files are refused with the file and the place") {
  const std::string head = R"({"format":"trireme-tokenizer","version":1,)";
  const auto refused = [](const std::string& text) { return caught([&] { parse_tokenizer(text, "some/file.json"); }); };
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "byte 0: not valid JSON"},
      {"{\"format\": ", "byte 11: not valid JSON"},
      {"[1,2]", "not a tokenizer file"},
      {R"({"format":"trireme-tokenizer","version":2,"kind":"byte"})", "version 2"},
      {head + R"("kind":"word"})", "unknown kind"},
      {head + R"("kind":7})", "no \"kind\" of type string"},
      {head + R"("kind":"char"})", "no \"characters\""},
      {head + R"("kind":"char","characters":""})", "is empty"},
      {head + R"("kind":"char","characters":"abca"})", "byte 3"},
      {head + R"("kind":"char","kind":"byte"})", "occurs twice"},
      {head + R"("kind":"byte","x":NaN})", "not valid JSON"},
      {head + R"("kind":"byte","x":)" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"},
      {head + R"("kind":"bpe","tokens":["a"],"merges":[]})", "0x00"},
      {head + R"("kind":"bpe","tokens":["a",1],"merges":[]})", "entry 1"},
      {head + R"("kind":"bpe","tokens":["a b"],"merges":[]})", "outside the byte alphabet"},
  };
  for (const auto& [text, part] : cases) {
    const Caught error = refused(text);
    CAPTURE(text);
    CAPTURE(error.message);
    CHECK(error.code == ExitCode::data);
    CHECK(error.has("some/file.json"));
    CHECK(error.has(part));
  }
  CHECK(caught([] { load_tokenizer("/nonexistent/tokenizer.json"); }).code == ExitCode::io);
}

TEST_CASE("--tokenizer: what is unknown or does not exist is a usage error") {
  const TempFolder folder;
  for (const std::string& specification : {std::string("word"), std::string("bpe"), std::string("bpe:"),
                                           "bpe:" + folder.path().string(), "bpe:" + (folder / "absent").string()}) {
    CAPTURE(specification);
    CHECK(caught([&] { make_tokenizer(specification, {}); }).code == ExitCode::usage);
  }
  ByteTokenizer().save(folder / "tokenizer.json");
  CHECK(caught([&] { make_tokenizer("bpe:" + folder.path().string(), {}); }).has("is a byte tokenizer"));
  CHECK(make_tokenizer("byte", {})->vocab_size() == 256);
}

TEST_CASE("a vocabulary may have tens of thousands of added tokens") {
  const std::string_view text = "some text some text";
  nlohmann::json file = nlohmann::json::parse(hugging_face_json(BpeTokenizer(train_bpe({&text, 1}, 258), "test")));
  constexpr int more = 28'682;                                         // as models have that write sound
  const int known = file["added_tokens"].back()["id"].get<int>() + 1;  // <|endoftext|> is the last
  for (int i = 0; i < more; ++i)
    file["added_tokens"].push_back({{"id", known + i},
                                    {"content", "<custom_token_" + std::to_string(i) + ">"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  const auto tokenizer = parse_hugging_face_json(file.dump(), "tokenizer.json");
  CHECK(tokenizer->vocab_size() == known + more);
  CHECK(parse_tokenizer(tokenizer->to_json(), "saved")->hash() == tokenizer->hash());
}
