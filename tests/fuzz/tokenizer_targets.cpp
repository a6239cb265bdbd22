// Targets for the files of tokenizers.
#include <algorithm>
#include <memory>

#include "data/bpe_tokenizer.h"
#include "data/hugging_face.h"
#include "data/regex_pattern.h"
#include "data/sentencepiece.h"
#include "data/tiktoken.h"
#include "data/utf8.h"
#include "tests/fuzz/targets.h"

namespace trireme::fuzz {

namespace {

const std::filesystem::path input_path = "input";

/// What every tokenizer promises, whatever its file says.
void check_tokenizer(const Tokenizer& tokenizer, std::string_view anything) {
  const std::string text = tokenizer.to_json();
  const auto again = parse_tokenizer(text, input_path);
  expect(again->to_json() == text && again->hash() == tokenizer.hash(), "a tokenizer changed by being written");
  expect(tokenizer.vocab_size() > 0, "an empty vocabulary");
  expect(tokenizer.end_of_text().value_or(0) < tokenizer.vocab_size(), "the end of text is no token");
  std::vector<std::int32_t> all(static_cast<std::size_t>(std::min(tokenizer.vocab_size(), 1000)));
  for (std::size_t id = 0; id < all.size(); ++id) all[id] = static_cast<std::int32_t>(id);
  tokenizer.decode(all);
  accepted([&] {
    std::vector<std::int32_t> ids = tokenizer.encode(anything), special = tokenizer.encode_with_special(anything);
    expect(again->encode(anything) == ids, "a tokenizer that was written gives other ids");
    ids.insert(ids.end(), special.begin(), special.end());
    tokenizer.decode(ids);  // throws for an id that is no token
  });
}

/// A text with many lines that may be cut, and special tokens.
std::string lines_of(std::string_view input) {
  std::string text;
  for (std::size_t at = 0; at < input.size() && at < 300; at += 10)
    text += fmt::format("The {} line.\nthe</s> th", input.substr(at, 10));
  return text;
}

void check_cuts(const Tokenizer& tokenizer, std::string_view text) {
  accepted([&] {
    const auto cut = tokenizer.safe_cut(text, text.size() / 2);
    if (!cut) return;
    expect(*cut >= text.size() / 2 && *cut <= text.size(), "a cut outside the text");
    std::vector<std::int32_t> ids;
    tokenizer.append_part_ids(text, 0, *cut, ids);
    tokenizer.append_part_ids(text, *cut, text.size(), ids);
    expect(ids == tokenizer.encode(text), "the ids of two parts are others than those of the text");
  });
}

}  // namespace

void tokenizer(std::string_view input) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const std::size_t zero = input.find('\0');
  const bool two_files = zero != std::string_view::npos;
  if (!accepted([&] {
        tokenizer = two_files
                        ? parse_hugging_face(input.substr(0, zero), "vocab.json", input.substr(zero + 1), "merges.txt")
                        : parse_tokenizer(input, input_path);
      }))
    return;
  const std::string anything(input.substr(0, 1000));
  check_tokenizer(*tokenizer, anything);
  check_cuts(*tokenizer, lines_of(input));
  if (input.find("hugging-face") != std::string_view::npos) return;  // its normalizers may change a text
  accepted([&] { expect(tokenizer->decode(tokenizer->encode(anything)) == anything, "a text came back changed"); });
}

void hugging_face(std::string_view input) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!accepted([&] { tokenizer = parse_hugging_face_json(input, input_path); })) return;
  check_tokenizer(*tokenizer, input.substr(0, 1000));
  const std::string lines = lines_of(input);
  check_tokenizer(*tokenizer, lines);
  check_cuts(*tokenizer, lines);
}

void tiktoken(std::string_view input) {
  for (const char* encoding : {"r50k_base", "cl100k_base", "o200k_base", "llama3", "qwen2"}) {
    std::shared_ptr<const Tokenizer> tokenizer;
    if (!accepted([&] { tokenizer = parse_tiktoken(input, encoding, input_path); })) return;
    const std::string anything = lines_of(input) + std::string(input.substr(0, 300));
    check_tokenizer(*tokenizer, anything);
    check_cuts(*tokenizer, anything);
    expect(tokenizer->decode(tokenizer->encode(anything)) == anything, "a text came back changed");
  }
}

void sentencepiece(std::string_view input) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!accepted([&] { tokenizer = make_sentence_piece(input, input_path, {}); })) return;
  const std::string anything = lines_of(input) + std::string(input.substr(0, 300));
  check_tokenizer(*tokenizer, anything);
  check_cuts(*tokenizer, lines_of(input));
}

void regex(std::string_view input) {
  const std::size_t line = std::min(input.find('\n'), input.size());
  std::unique_ptr<const RegexPattern> pattern;
  if (!accepted([&] { pattern = std::make_unique<const RegexPattern>(input.substr(0, line), "pattern"); })) return;
  std::string_view text = input.substr(line).substr(0, 500);
  text = text.substr(0, valid_utf8_prefix(text));
  accepted([&] {
    std::size_t done = 0;
    pattern->for_each_match(text, [&](std::size_t begin, std::size_t end) {
      expect(done <= begin && begin < end && end <= text.size(), "matches out of order, or an empty one");
      done = end;
    });
  });
}

}  // namespace trireme::fuzz
