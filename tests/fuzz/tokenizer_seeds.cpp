// Inputs for the targets that parse tokenizers.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <protozero/pbf_writer.hpp>

#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/hugging_face.h"
#include "data/tiktoken.h"
#include "tests/fuzz/seeds.h"

namespace trireme::fuzz {

namespace {

using Json = nlohmann::json;

BpeVocabulary small_vocabulary() {
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"th", "the", std::string(end_of_text_name)});
  vocabulary.merges = {{'t', 'h'}, {256, 'e'}};
  vocabulary.end_of_text = 258;
  return vocabulary;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
    const unsigned bits = byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2);
    for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : alphabet[bits >> (18 - 6 * i) & 63];
  }
  return text;
}

std::string ranks() {
  std::string lines;
  const BpeVocabulary bpe = small_vocabulary();
  for (std::size_t id = 0; id < 258; ++id) lines += fmt::format("{} {}\n", base64_of(bpe.tokens[id]), id);
  return lines;
}

/// tokenizer.json of Hugging Face, by bytes.
Json by_bytes() {
  Json vocab;
  const BpeVocabulary bpe = small_vocabulary();
  for (std::size_t id = 0; id < 258; ++id) vocab[spell_bytes(bpe.tokens[id])] = id;
  return {{"added_tokens", Json::array({{{"id", 258}, {"content", "</s>"}, {"special", true}}})},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", "\\s+"}}}, {"behavior", "MergedWithNext"}, {"invert", false}},
              {{"type", "ByteLevel"}, {"use_regex", true}}}}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array({"t h", "th e"})}}}};
}

/// The same by characters, with byte fallback.
Json by_characters() {
  Json vocab = {{"<s>", 256}, {"t", 257},   {"h", 258},      {"e", 259},
                {"th", 260},  {"the", 261}, {"\u2581", 262}, {"\u2581the", 263}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = byte;
  return {
      {"added_tokens", Json::array({{{"id", 256}, {"content", "<s>"}, {"special", true}, {"rstrip", true}}})},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", Json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", Json::array({256})}, {"tokens", Json::array({"<s>"})}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", Json::array({Json::array({"t", "h"}), Json::array({"th", "e"}), Json::array({"\u2581", "the"})})}}}};
}

std::vector<Seed> valid_tokenizers() {
  const BpeVocabulary bpe = small_vocabulary();
  std::string vocab = "{";
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) {
    const std::string spelling = spell_bytes(bpe.tokens[id]);
    const bool escaped = spelling == "\"" || spelling == "\\";
    vocab += fmt::format("{}\"{}{}\":{}", id == 0 ? "" : ",", escaped ? "\\" : "", spelling, id);
  }
  const std::string_view text = "char z\xC3\xA9\xE2\x82\xAC\n";
  return {{"byte", ByteTokenizer().to_json()},
          {"char", CharTokenizer::from_texts({&text, 1}).to_json()},
          {"bpe", BpeTokenizer(bpe, "seed").to_json()},
          {"hugging_face", vocab + "}" + '\0' + "#version: 0.2\nt h\nth e\n"}};
}

std::vector<Seed> valid_hugging_face() {
  Json metaspace = by_characters(), digits = by_bytes();
  metaspace["normalizer"] = nullptr;
  metaspace["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  metaspace["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}, {"split", true}};
  digits["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Digits"}, {"individual_digits", true}};
  digits["normalizer"] = {{"type", "Lowercase"}};
  return {{"bytes", by_bytes().dump()},
          {"characters", by_characters().dump()},
          {"metaspace", metaspace.dump()},
          {"digits", digits.dump()}};
}

/// A model of SentencePiece: its algorithm (1: unigrams, 2: merges), and how it normalizes.
std::string sentence_piece_file(std::int32_t algorithm, bool plain, std::string_view rules) {
  std::string file;
  protozero::pbf_writer model(file);
  const auto add = [&](std::string_view text, float score, std::int32_t type) {
    protozero::pbf_writer piece(model, 1);
    piece.add_string(1, text.data(), text.size());
    piece.add_float(2, score);
    piece.add_enum(3, type);
  };
  add("<unk>", 0, 2);
  for (const char* name : {"<s>", "</s>"}) add(name, 0, 3);
  for (const char* text : {"\u2581t", "he", "\u2581the", "\u2581", "t", "h", "e", " ", "T", "\n", "line"})
    add(text, -0.5F * static_cast<float>(file.size() % 64), 1);
  if (!plain) add("<x>", 0, 4);
  {
    protozero::pbf_writer trainer(model, 2);
    trainer.add_enum(3, algorithm);
  }
  protozero::pbf_writer normalizer(model, 3);
  normalizer.add_string(2, rules.data(), rules.size());
  normalizer.add_bool(4, !plain);
  return file;
}

std::vector<Seed> sentence_piece_files() {
  // Two units and a replacement: no byte goes on from the root.
  const std::string rules("\x08\0\0\0\0\x04\0\0\0\0\0\x80x\0", 14);
  std::vector<Seed> seeds = {{"unigrams", sentence_piece_file(1, false, "")},
                             {"merges", sentence_piece_file(2, false, "")},
                             {"plain", sentence_piece_file(2, true, "")},
                             {"rules", sentence_piece_file(1, false, rules)}};
  seeds.push_back({"cut", seeds.front().content.substr(0, 100)});
  return seeds;
}

template <class List>
void add_malformed(std::vector<Seed>& seeds, const List& list) {
  for (const Malformed& bad : list) seeds.push_back({"bad_" + bad.name, bad.content});
}

}  // namespace

std::vector<Seed> tokenizer_seeds(std::string_view target) {
  std::vector<Seed> result;
  if (target == "tokenizer") {
    result = valid_tokenizers();
    result.push_back({"saved_bytes", parse_hugging_face_json(by_bytes().dump(), "seed")->to_json()});
    result.push_back({"saved_characters", parse_hugging_face_json(by_characters().dump(), "seed")->to_json()});
    result.push_back({"saved_ranks", parse_tiktoken(ranks(), "o200k_base", "seed")->to_json()});
    add_malformed(result, malformed_tokenizers());
  }
  if (target == "hugging_face") {
    result = valid_hugging_face();
    add_malformed(result, malformed_hugging_face());
  }
  if (target == "tiktoken") {
    result = {{"ranks", ranks()}};
    add_malformed(result, malformed_tiktoken());
  }
  if (target == "sentencepiece") result = sentence_piece_files();
  if (target == "regex")
    result = {{"gpt2", std::string(regular_expression(WordPattern::gpt2)) + "\nIt's 1 text, \xC3\xA9  \n "},
              {"groups", "(?i:re|s)(?=x)|[^\\s\\p{P}]{1,3}+?\nREx sx"},
              {"slow", "(?:a+)+b|(a|a)*c\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}};
  return result;
}

std::vector<Malformed> malformed_tokenizers() {
  const std::string head = R"({"format":"trireme-tokenizer","version":1,)";
  return {
      {"not_json", R"({"format": )", "byte 11:", "not valid JSON"},
      {"comment", "/* */" + head + R"("kind":"byte"})", "byte 0:", "not valid JSON"},
      {"not_a_number", head + R"("kind":"byte","x":NaN})", "byte 60:", "not valid JSON"},
      {"duplicate_key", head + R"("kind":"char","kind":"byte"})", "byte 56:", "occurs twice"},
      {"deep_nesting", head + R"("x":)" + std::string(100, '[') + std::string(100, ']') + "}", "byte 109:", "deeper"},
      {"not_utf8", head + "\"kind\":\"\xC0\x80\"}", "byte 50:", "not valid JSON"},
      {"open_string", head + R"("kind":"by)", "byte 49:", "does not end"},
      {"two_values", head + R"("kind":"byte"}{})", "byte 56:", "not valid JSON"},
      {"token_not_text", head + R"("kind":"bpe","tokens":["a",1],"merges":[]})", "byte 69:", "entry 1: expected a"},
      {"foreign_character", head + R"("kind":"bpe","tokens":["a b"],"merges":[]})", "byte 65:", "byte alphabet"},
      {"merge_of_one", head + R"("kind":"bpe","tokens":["a"],"merges":["a"]})", "byte 80:", "expected two tokens"},
      {"merge_unknown", head + R"("kind":"bpe","tokens":["a"],"merges":["a b"]})", "byte 80:", "not in the vocab"},
      {"not_ours", "[1,2]", "byte 0:", "not a tokenizer file"}};
}

std::vector<Malformed> malformed_hugging_face() {
  const std::string good = by_bytes().dump();
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const auto at = [&](std::string_view text) { return fmt::format("byte {}:", good.find(text)); };
  return {{"not_json", "{\"model\": ", "byte 10:", "not valid JSON"},
          {"cut", good.substr(0, good.size() - 1), fmt::format("byte {}:", good.size() - 1), "not valid JSON"},
          {"token_twice", changed("\"the\":257", "\"the\":256"), at("\"the\":257"), "has the id 256 of \"th\""},
          {"id_far_away", changed(":257", ":4294967295"), at("\"the\":257"), "has id 4294967295"},
          {"id_negative", changed(":257", ":-1"), at("\"the\":257"), "has id -1"},
          {"gap", changed(":257", ":258"), at("\"the\":257"), "none has 257"},
          {"merge_unknown", changed("th e", "th eee"), at("\"th e\""), "\"eee\" is not in the vocabulary"},
          {"merge_of_three", changed("th e", "t h e"), at("\"th e\""), "expected two tokens with one space"},
          {"merge_not_text", changed("\"th e\"", "[1,2]"), at("\"th e\""), "is [1,2]; expected two tokens"}};
}

std::vector<Malformed> malformed_tiktoken() {
  const std::string good = ranks();
  const std::string end = fmt::format("byte {}: line 259:", good.size());
  return {{"empty", "", "byte 0:", "no token"},
          {"no_rank", good + "dGg=", end, "expected a token in base64"},
          {"not_a_number", good + "dGhlbg== x", end, "expected a token in base64"},
          {"not_base64", good + "d*hl 258", end, "expected a token in base64"},
          {"padding_inside", good + "dG=l 258", end, "expected a token in base64"},
          {"empty_token", good + " 258", end, "expected a token in base64"},
          {"rank_twice", good + "dGhl 3", end, "rank 3 is that of an earlier line"},
          {"rank_far_away", good + "dGhlbg== 4294967295", end, "rank 4294967295; expected less than"},
          {"rank_wrapping", good + "dGhlbg== 18446744073709551617", end, "expected a token in base64"}};
}

}  // namespace trireme::fuzz
