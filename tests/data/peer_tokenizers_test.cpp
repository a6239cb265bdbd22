// Our tokenizers against the libraries `tokenizers` and `tiktoken`: tests/golden/tokenizers.json has tokenizers in the
// manner of published models, texts, and what the libraries make of them (tests/golden/make_tokenizers.py).
// scripts/peer_tokenizers.py compares with the libraries themselves, on megabytes.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "core/io.h"
#include "core/parallel_for.h"
#include "data/bpe_train.h"
#include "data/byte_alphabet.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/hugging_face.h"
#include "data/parallel_encode.h"
#include "data/tiktoken.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const json& golden() {
  static const json file = json::parse(read_file("tests/golden/tokenizers.json"));
  return file;
}

std::shared_ptr<const PipelineTokenizer> pipeline(const std::shared_ptr<const Tokenizer>& tokenizer) {
  return std::dynamic_pointer_cast<const PipelineTokenizer>(tokenizer);
}

std::shared_ptr<const PipelineTokenizer> golden_tokenizer(std::string_view name) {
  for (const json& entry : golden()["hugging_face"])
    if (entry["name"] == json(name))
      return pipeline(parse_hugging_face_json(entry["tokenizer"].dump(), std::string(name)));
  return nullptr;
}

std::shared_ptr<const PipelineTokenizer> golden_tiktoken(std::string_view name) {
  return pipeline(parse_tiktoken(golden()["tiktoken"][0]["ranks"].get<std::string>(), name, std::string(name)));
}

void check_texts(const PipelineTokenizer& tokenizer, const json& entry) {
  for (const json& expected : entry["texts"]) {
    const std::string text = expected["text"];
    CAPTURE(text);
    const Ids ids = expected["ids"], without = expected.value("without_template", ids);
    CHECK(tokenizer.encode_with_special(text) == ids);
    CHECK(tokenizer.encode_without_template(text) == without);
    CHECK(tokenizer.encode(text) == expected.value("ordinary", without));
    CHECK(tokenizer.encode(text) == expected.value("ordinary", without));  // now from the cache
    const std::string decoded = tokenizer.decode(ids);
    CHECK(decoded == expected.value("decoded", text));
    // Token by token, as generation prints them: the same but for what is taken away at the beginning.
    Utf8Stream printable;
    std::string streamed;
    for (const std::int32_t id : ids) streamed += printable.push(tokenizer.decode_further(id));
    streamed += printable.finish();
    CHECK(streamed.ends_with(decoded));
    CHECK(streamed.size() <= decoded.size() + 1);
  }
}

}  // namespace

TEST_CASE("tokenizers of Hugging Face give the library's ids and texts") {
  for (const json& entry : golden()["hugging_face"]) {
    CAPTURE(entry["name"].get<std::string>());
    const auto tokenizer = pipeline(parse_hugging_face_json(entry["tokenizer"].dump(), "tokenizer.json"));
    REQUIRE(tokenizer);
    check_texts(*tokenizer, entry);
    const auto saved = pipeline(parse_tokenizer(tokenizer->to_json(), "saved"));
    REQUIRE(saved);
    CHECK(saved->to_json() == tokenizer->to_json());
    CHECK(saved->hash() == tokenizer->hash());
    CHECK(saved->end_of_text() == tokenizer->end_of_text());
    check_texts(*saved, entry);
  }
}

TEST_CASE("files of ranks give tiktoken's ids") {
  for (const json& entry : golden()["tiktoken"]) {
    CAPTURE(entry["name"].get<std::string>());
    const auto tokenizer = golden_tiktoken(entry["name"].get<std::string>());
    const auto saved = pipeline(parse_tokenizer(tokenizer->to_json(), "saved"));
    CHECK(saved->hash() == tokenizer->hash());
    for (const json& expected : entry["texts"]) {
      const std::string text = expected["text"];
      CAPTURE(text);
      for (const auto& each : {tokenizer, saved}) {
        CHECK(each->encode_with_special(text) == expected["ids"].get<Ids>());
        CHECK(each->encode(text) == expected["ordinary"].get<Ids>());
        CHECK(each->decode(each->encode(text)) == text);
      }
    }
  }
}

TEST_CASE("added tokens are text, those of the model bytes") {
  const auto tokenizer = golden_tokenizer("overlapping");
  const std::int32_t units = *tokenizer->find("\u00DCn\u00EFts"), letter = *tokenizer->find("\u00E9");
  CHECK(tokenizer->decode({&units, 1}) == "\u00DCn\u00EFts");
  CHECK(tokenizer->decode({&letter, 1}) == "\xE9");  // it is in the vocabulary, as the spelling of this byte
}

TEST_CASE("what ends a document is found by its name") {
  CHECK(golden_tokenizer("gpt2")->end_of_text() == golden_tokenizer("gpt2")->find("<|endoftext|>"));
  CHECK(golden_tokenizer("llama3")->end_of_text() == golden_tokenizer("llama3")->find("<|end_of_text|>"));
  CHECK(golden_tokenizer("llama2")->end_of_text() == 2);
  CHECK(golden_tokenizer("gemma")->end_of_text() == 1);
  CHECK(golden_tiktoken("cl100k_base")->end_of_text() == golden_tiktoken("cl100k_base")->find("<|endoftext|>"));
}

TEST_CASE("bytes that are not UTF-8 come back, and leave the text around them as it is") {
  std::mt19937_64 random(12);
  for (const json& entry : golden()["hugging_face"]) {
    const std::string name = entry["name"];
    CAPTURE(name);
    const auto tokenizer = golden_tokenizer(name);
    if (name == "overlapping" || name == "lower") continue;  // these change texts
    for (int round = 0; round < 20; ++round) {
      const std::string text = random_bytes(random, 60);
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    }
  }
  const auto gpt2 = golden_tokenizer("gpt2");
  Ids parts = gpt2->encode("the first");
  parts.push_back(*gpt2->find(spell_bytes("\xFF")));
  const Ids rest = gpt2->encode(" and the rest");
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(gpt2->encode("the first\xFF and the rest") == parts);
}

TEST_CASE("several threads give the ids of one") {
  std::string text;
  std::mt19937_64 random(13);
  while (text.size() < (std::size_t{3} << 20)) {
    text += "A line of words, don't 12345 stop";
    if (random() % 3 == 0) text += random_text(random, 40);
    text += random() % 4 == 0 ? " \n\n  " : "\n";
    if (random() % 50 == 0) text += "<|endoftext|> </s> <|a|>b left ";
    if (random() % 50 == 0) text += "word\nword \nleft\nright\n";
  }
  const int before = threads();
  for (const json& entry : golden()["hugging_face"]) {
    CAPTURE(entry["name"].get<std::string>());
    const auto tokenizer = golden_tokenizer(entry["name"].get<std::string>());
    Ids parallel;
    set_threads(3);
    encode_in_parallel(*tokenizer, text, [&](std::span<const std::int32_t> ids) {
      parallel.insert(parallel.end(), ids.begin(), ids.end());
    });
    set_threads(before);
    CHECK(parallel == tokenizer->encode(text));
  }
  CHECK(golden_tokenizer("gpt2")->safe_cut(text, 100));
  CHECK(golden_tokenizer("llama2")->safe_cut(text, 100));
}

TEST_CASE("folders and files of published models are found by --tokenizer") {
  const TempFolder folder;
  const json& entry = golden()["hugging_face"][1];
  write_file(folder / "tokenizer.json", entry["tokenizer"].dump());
  write_file(folder / "vocab.json", "{}");  // the newer file counts
  write_file(folder / "merges.txt", "");
  const auto tokenizer = make_tokenizer("bpe:" + folder.path().string(), {});
  CHECK(tokenizer->hash() == make_tokenizer("bpe:" + (folder / "tokenizer.json").string(), {})->hash());
  CHECK(tokenizer->name() == "bpe");
  write_file(folder / "x.tiktoken", golden()["tiktoken"][0]["ranks"].get<std::string>());
  const std::string ranks = (folder / "x.tiktoken").string();
  const Caught unknown = caught([&] { make_tokenizer("tiktoken:gpt5:" + ranks, {}); });
  CHECK(unknown.code == ExitCode::usage);
  CHECK(unknown.has("expected one of r50k_base, p50k_base, cl100k_base, o200k_base, llama3, qwen2"));
  CHECK(caught([&] { make_tokenizer("tiktoken:o200k_base", {}); }).code == ExitCode::usage);
  CHECK(caught([&] { make_tokenizer("tiktoken:o200k_base:/nowhere", {}); }).code == ExitCode::usage);
}

TEST_CASE("a file of ranks has as many as the published one of its encoding") {
  const TempFolder folder;
  const std::string path = (folder / "x.tiktoken").string(), few = golden()["tiktoken"][0]["ranks"];
  const auto count = static_cast<int>(std::count(few.begin(), few.end(), '\n'));
  const auto refused = [&](const std::string& encoding) {
    return error_of([&] { make_tokenizer("tiktoken:" + encoding + ":" + path, {}); }, ExitCode::data);
  };
  write_plainly(path, few);
  CHECK(says(refused("r50k_base"), fmt::format("x.tiktoken has {} ranks; expected 50256, as r50k_base has", count)));
  std::string text = few;  // the rest: tokens of six bytes, written as eight characters
  for (int rank = count; rank < 50256; ++rank) text += fmt::format("{:08} {}\n", rank, rank);
  write_plainly(path, text);
  const auto tokenizer = make_tokenizer("tiktoken:r50k_base:" + path, {});
  CHECK(tokenizer->end_of_text() == 50256);
  CHECK(tokenizer->hash() == parse_tiktoken(text, "r50k_base", path)->hash());
  CHECK(says(refused("cl100k_base"), "that is the number of r50k_base: give tiktoken:r50k_base:PATH"));
}

TEST_CASE("a token that stands only beside tokenizer.json is refused, because transformers would add it") {
  const json& entry = golden()["hugging_face"][0];
  const TempFolder folder;
  write_file(folder / "tokenizer.json", entry["tokenizer"].dump());
  const std::string known = entry["tokenizer"]["added_tokens"][0]["content"];
  const auto load = [&](const json& configuration) {
    write_file(folder / "tokenizer_config.json", configuration.dump());
    return make_tokenizer("bpe:" + folder.path().string(), {});
  };
  const json token = {{"content", "<not there>"}, {"special", true}};
  for (const json& configuration :
       {json{{"added_tokens_decoder", {{"999", token}}}}, json{{"additional_special_tokens", {known, "<not there>"}}},
        json{{"eos_token", token}}, json{{"bos_token", "<not there>"}}}) {
    const std::string message = error_of([&] { load(configuration); }, ExitCode::data);
    CHECK_MESSAGE(says(message, R"("<not there>")"), message);
    CHECK_MESSAGE(says(message, configuration.begin().key()), message);
  }
  const json right = {
      {"added_tokens_decoder", {{"0", {{"content", known}}}}}, {"eos_token", known}, {"pad_token", "<>"}};
  CHECK(load(right)->hash() == make_tokenizer("bpe:" + (folder / "tokenizer.json").string(), {})->hash());
  write_file(folder / "added_tokens.json", R"({"<older>": 998})");
  CHECK(says(error_of([&] { load(right); }, ExitCode::data), R"("<older>")"));
}

TEST_CASE("written as tokenizer.json, a tokenizer gives the same ids") {
  std::mt19937_64 random(14);
  const std::string text = random_text(random, 500) + "It's 12 o'clock.\n\n  <|endoftext|> " + random_text(random, 100);
  const std::string_view view = text;
  std::vector<std::shared_ptr<const Tokenizer>> tokenizers = {
      std::make_shared<ByteTokenizer>(), std::make_shared<CharTokenizer>(CharTokenizer::from_texts({&view, 1})),
      std::make_shared<BpeTokenizer>(train_bpe({&view, 1}, 265), "test")};
  for (const json& entry : golden()["hugging_face"])
    tokenizers.push_back(golden_tokenizer(entry["name"].get<std::string>()));
  for (const auto& tokenizer : tokenizers) {
    const auto written = parse_hugging_face_json(hugging_face_json(*tokenizer), "tokenizer.json");
    CHECK(written->vocab_size() == tokenizer->vocab_size());
    CHECK(written->end_of_text() == tokenizer->end_of_text());
    CHECK(written->encode(text) == tokenizer->encode(text));
    CHECK(written->encode_with_special(text) == tokenizer->encode_with_special(text));
    CHECK(written->decode(written->encode(text)) == tokenizer->decode(tokenizer->encode(text)));
    CHECK(hugging_face_json(*written) == hugging_face_json(*parse_hugging_face_json(hugging_face_json(*written), "t")));
  }
  CHECK(caught([] { hugging_face_json(*golden_tiktoken("o200k_base")); }).code == ExitCode::usage);
}

TEST_CASE("what is not supported is refused, with the field and its value") {
  const json good = golden()["hugging_face"][0]["tokenizer"];
  REQUIRE(parse_hugging_face_json(good.dump(), "t.json"));
  const auto refused = [&](const char* pointer, const json& value) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    const Caught error = caught([&] { parse_hugging_face_json(bad.dump(), "t.json"); });
    CHECK(error.code == ExitCode::data);
    return error.message;
  };
  const auto says = [](const std::string& message, std::string_view part) {
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  says(refused("/model/type", "WordPiece"), "t.json: model.type is \"WordPiece\"; expected BPE");
  says(refused("/model/dropout", 0.1), "model.dropout is 0.1; expected null");
  says(refused("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix is \"</w>\"; expected null");
  says(refused("/model/new", true), "model.new is true; expected no such field");
  says(refused("/normalizer", {{"type", "BertNormalizer"}}), "normalizer.type is \"BertNormalizer\"; expected NFC");
  says(refused("/pre_tokenizer", {{"type", "Whitespace"}}), "pre_tokenizer.type is \"Whitespace\"");
  says(
      refused("/pre_tokenizer",
              {{"type", "Sequence"},
               {"pretokenizers",
                {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}}}}}),
      "pre_tokenizer.pretokenizers[0].pattern.Regex is \"\\\\w+\": the escape \\w at byte 0; not supported");
  says(refused("/decoder", nullptr), "decoder");
  says(refused("/decoder", {{"type", "WordPiece"}}), "decoder is ");
  says(refused("/post_processor", {{"type", "RobertaProcessing"}}), "post_processor.type is \"RobertaProcessing\"");
  says(refused("/truncation", {{"max_length", 5}}), "truncation is ");
  says(refused("/added_tokens/0/id", 7), "added_tokens[0].id is 7; expected ");
  says(refused("/model/vocab/a", 5000), "none has");
  says(refused("/model/merges/0", "a"), "model.merges[0]: expected two tokens with one space between them");
  says(refused("/model/merges/0", 5), "model.merges[0] is 5; expected two tokens");
  says(refused("/model/byte_fallback", 3), "");
}
