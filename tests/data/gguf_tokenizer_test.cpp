// Tokenizers as keys of a GGUF file, and back: the same ids. scripts/peers/gguf.py compares with llama.cpp itself.
#include "data/gguf/tokenizer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "data/bpe_train.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/gguf/keys.h"
#include "data/hugging_face.h"
#include "data/sentencepiece.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace gguf_tokenizer_test {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// A file of these keys, and its layout.
struct Keys {
  std::string text;
  GgufLayout layout;
  explicit Keys(const GgufValues& values) : text(gguf_header(values, {})), layout(parse_gguf(text, "keys.gguf")) {}
  std::shared_ptr<const Tokenizer> tokenizer() const { return read_gguf_tokenizer(layout, "keys.gguf"); }
};

Keys keys_of(const Tokenizer& tokenizer, const GgufTokenizerChoices& choices = {}) {
  GgufValues values;
  add_gguf_tokenizer(values, tokenizer, choices);
  return Keys(values);
}

const json& golden() {
  static const json file = json::parse(read_file("tests/golden/tokenizers.json"));
  return file;
}

std::shared_ptr<const Tokenizer> golden_tokenizer(std::string_view name) {
  for (const json& entry : golden()["hugging_face"])
    if (entry["name"] == json(name)) return parse_hugging_face_json(entry["tokenizer"].dump(), std::string(name));
  return nullptr;
}

}  // namespace

TEST_CASE("tokenizers of published models keep their ids through the keys of a GGUF file") {
  for (const char* name : {"gpt2", "llama3", "qwen2", "o200k"}) {
    CAPTURE(name);
    const auto tokenizer = golden_tokenizer(name);
    REQUIRE(tokenizer);
    const std::int64_t rows = tokenizer->vocab_size() + 13;
    const Keys keys = keys_of(*tokenizer, {.rows = rows, .chat_template = "{{ messages }}"});
    CHECK(keys.layout.find("tokenizer.ggml.tokens")->count() == static_cast<std::uint64_t>(rows));
    CHECK(keys.layout.find(gguf_chat_template_key)->text() == "{{ messages }}");
    CHECK(gguf_end_tokens(keys.layout, "keys.gguf") == Ids{tokenizer->end_of_text().value()});
    const auto back = keys.tokenizer();
    CHECK(back->vocab_size() == tokenizer->vocab_size());
    for (const json& entry : golden()["hugging_face"]) {
      for (const json& expected : entry["texts"]) {
        const std::string text = expected["text"];
        CAPTURE(text);
        CHECK(back->encode(text) == tokenizer->encode(text));
        CHECK(back->encode_with_special(text) == tokenizer->encode_with_special(text));
        CHECK(back->decode(back->encode(text)) == tokenizer->decode(tokenizer->encode(text)));
      }
    }
  }
}

TEST_CASE("bytes, and what prepare_data learnt, are byte-level BPE with GPT-2's words") {
  const std::string text = "The cat sat on the mat.\n\nThe cat, 42 cats \xF0\x9F\x98\x80!";
  const std::string_view view = text;
  const BpeTokenizer learnt(train_bpe({&view, 1}, 261), "learnt");
  const auto back = keys_of(learnt).tokenizer();
  CHECK(back->encode(text) == learnt.encode(text));
  CHECK(back->decode(back->encode(text)) == text);
  CHECK(back->end_of_text() == learnt.end_of_text());
  const ByteTokenizer bytes;
  const Keys keys = keys_of(bytes);
  CHECK(keys.tokenizer()->encode(text) == bytes.encode(text));
  CHECK(gguf_end_tokens(keys.layout, "keys.gguf") == Ids{0});
  // The tokenizer.json that we write for bytes, read again.
  const Keys exported = keys_of(*parse_hugging_face_json(hugging_face_json(bytes), "tokenizer.json"));
  CHECK(exported.tokenizer()->encode(text) == bytes.encode(text));
  CHECK(gguf_end_tokens(exported.layout, "keys.gguf") == Ids{0});
}

TEST_CASE("BPE of characters: scores are read as merges, and written as the same order") {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  const std::string mark = "\xE2\x96\x81";
  for (const std::string& token : {mark + "t",           std::string("he"),  std::string("in"), mark + "the",
                                   mark + "a",           std::string("er"),  std::string("re"), mark + "there",
                                   std::string("the"),   std::string("ing"), mark + mark,       mark,
                                   std::string("t"),     std::string("h"),   std::string("e"),  std::string("i"),
                                   std::string("n"),     std::string("g"),   std::string("r"),  std::string("a"),
                                   std::string("\u00e9")}) {
    tokens.push_back(token);
    types.push_back(1);
  }
  std::vector<float> scores(tokens.size(), 0);
  for (std::size_t id = 259; id < tokens.size(); ++id) scores[id] = 259.0F - static_cast<float>(id);
  for (const bool in_front : {true, false}) {
    GgufValues values;
    values.add("tokenizer.ggml.model", "llama");
    values.add("tokenizer.ggml.tokens", tokens);
    values.add("tokenizer.ggml.token_type", types);
    values.add("tokenizer.ggml.scores", scores);
    values.add("tokenizer.ggml.add_space_prefix", in_front);
    values.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
    values.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    values.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
    const auto tokenizer = Keys(values).tokenizer();
    const auto id = [&](const std::string& token) {
      return static_cast<std::int32_t>(std::find(tokens.begin(), tokens.end(), token) - tokens.begin());
    };
    const Ids the = in_front ? Ids{1, id(mark + "there")} : Ids{1, id("the"), id("re")};
    CHECK(tokenizer->encode_with_special("there") == the);
    CHECK(tokenizer->encode(" a\u00e9\u20ac").back() == id("<0xAC>"));
    const Keys written = keys_of(*tokenizer, {.end_tokens = {2}, .special_tokens = {{"pad_token", "</s>"}}});
    CHECK(written.tokenizer()->to_json() == tokenizer->to_json());
    CHECK(gguf_special_tokens(written.layout, "keys.gguf") ==
          SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "</s>"}});
  }
  CHECK(says(error_of([&] { keys_of(*golden_tokenizer("llama2")); }, ExitCode::usage), "has no merge of"));
}

TEST_CASE("up to three tokens that end a text have keys, the one that ends a turn before the one of a message") {
  const auto tokenizer = golden_tokenizer("llama3");
  REQUIRE(tokenizer);
  const auto id = [&](const char* text) { return tokenizer->encode_with_special(text).back(); };
  const std::int32_t text = id("<|end_of_text|>"), turn = id("<|eot_id|>"), message = id("<|begin_of_text|>");
  const Keys keys = keys_of(
      *tokenizer, {.end_tokens = {text, message, turn}, .chat_template = "{{ messages[0].content }}<|eot_id|>"});
  CHECK(gguf_end_tokens(keys.layout, "keys.gguf") == Ids{text, turn, message});
  const GgufKeys written(keys.layout, "keys.gguf");
  CHECK(written.token("tokenizer.ggml.eot_token_id", 1 << 20) == turn);
  CHECK(gguf_end_tokens(keys_of(*tokenizer).layout, "keys.gguf") == Ids{text});
  CHECK(says(error_of(
                 [&] {
                   keys_of(*tokenizer, {.end_tokens = {text, turn, message, 1}});
                 },
                 ExitCode::usage),
             "has 4 tokens that end a text"));
}

TEST_CASE("models of SentencePiece that are merges alone keep their ids") {
  const json golden = json::parse(read_file("tests/golden/sentencepiece.json"));
  for (const json& entry : golden["models"]) {
    if (entry["name"] != "llama2" && entry["name"] != "gemma") continue;
    CAPTURE(entry["name"].get<std::string>());
    const auto tokenizer = make_sentence_piece(bytes_of_hex(entry["file"]), "tokenizer.model", {});
    const auto back = keys_of(*tokenizer).tokenizer();
    for (const json& expected : entry["texts"]) {
      const std::string each = expected["text"];
      CAPTURE(each);
      CHECK(back->encode(each) == tokenizer->encode(each));
      CHECK(back->encode_with_special(each) == tokenizer->encode_with_special(each));
    }
  }
}

TEST_CASE("a special token has an id if its text is one token") {
  const auto gpt2 = golden_tokenizer("gpt2");
  const SpecialTokens tokens = {{"bos_token", "<|endoftext|>"}, {"pad_token", "<|nothing|>"}, {"unk_token", ""}};
  CHECK(gpt2->decode(std::vector{special_id(*gpt2, tokens, "bos_token").value()}) == "<|endoftext|>");
  for (const char* name : {"pad_token", "unk_token", "mask_token"}) CHECK_FALSE(special_id(*gpt2, tokens, name));
  CHECK_FALSE(special_id(CharTokenizer({U'a'}), {{"bos_token", "b"}}, "bos_token"));
}

TEST_CASE("a tokenizer that llama.cpp does not have is refused, and so are malformed keys") {
  const auto refused = [](const Tokenizer& tokenizer) {
    return error_of([&] { keys_of(tokenizer); }, ExitCode::usage);
  };
  CHECK(says(refused(CharTokenizer({U'a', U'b'})), "is of the kind char"));
  const auto changed = [](const std::function<void(GgufValues&)>& change) {
    GgufValues values;
    change(values);
    const Keys keys(values);
    return error_of([&] { keys.tokenizer(); }, ExitCode::data);
  };
  const std::vector<std::string> tokens = {"a", "b"};
  CHECK(says(changed([](GgufValues&) {}), "tokenizer.ggml.model is missing; expected a text"));
  CHECK(says(changed([](GgufValues& v) { v.add("tokenizer.ggml.model", "t5"); }), "is \"t5\"; expected gpt2 or llama"));
  CHECK(says(changed([&](GgufValues& v) {
               v.add("tokenizer.ggml.model", "gpt2");
               v.add("tokenizer.ggml.tokens", tokens);
               v.add("tokenizer.ggml.pre", "falcon");
             }),
             "tokenizer.ggml.pre is \"falcon\"; expected gpt-2"));
  CHECK(says(changed([&](GgufValues& v) {
               v.add("tokenizer.ggml.model", "llama");
               v.add("tokenizer.ggml.tokens", tokens);
               v.add("tokenizer.ggml.scores", std::vector<float>{1});
             }),
             "tokenizer.ggml.bos_token_id is missing"));
  CHECK(says(changed([&](GgufValues& v) {
               v.add("tokenizer.ggml.model", "llama");
               v.add("tokenizer.ggml.tokens", tokens);
               v.add("tokenizer.ggml.bos_token_id", std::uint32_t{2});
             }),
             "tokenizer.ggml.bos_token_id is 2; expected the id of a token, below 2"));
}

}  // namespace gguf_tokenizer_test
