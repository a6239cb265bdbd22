// Characters to ids through a table indexed by code point: at most 4.3 MB, usually under 100 kB.
#include "data/char_tokenizer.h"

#include "core/error.h"
#include "data/utf8.h"

namespace trireme {

namespace {

[[noreturn]] void fail_not_utf8(std::string_view text, std::size_t at) {
  fail(ExitCode::data, "tokenizer",
       "byte {} (0x{:02X}) is not UTF-8; expected UTF-8 text; convert it or use --tokenizer byte", at,
       static_cast<unsigned char>(text[at]));
}

std::vector<char32_t> at_least_one(std::vector<char32_t> characters) {
  if (characters.empty())
    fail(ExitCode::data, "tokenizer", "the text is empty; expected at least one character; change --data");
  return characters;
}

}  // namespace

std::optional<std::size_t> CharacterSet::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto character = decode_utf8(text, at);
    if (!character) return at;
    seen_[character->value] = true;
    at += character->bytes;
  }
  return std::nullopt;
}

std::vector<char32_t> CharacterSet::characters() const {
  std::vector<char32_t> characters;
  for (char32_t value = 0; value < seen_.size(); ++value)
    if (seen_[value]) characters.push_back(value);
  return characters;
}

CharTokenizer::CharTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {
  require(!characters_.empty(), "CharTokenizer", "the vocabulary is empty; expected at least one character");
  ids_.assign(static_cast<std::size_t>(characters_.back()) + 1, -1);
  for (std::size_t id = 0; id < characters_.size(); ++id) {
    require(id == 0 || characters_[id - 1] < characters_[id], "CharTokenizer", "character {} is out of order", id);
    ids_[characters_[id]] = static_cast<std::int32_t>(id);
  }
}

CharTokenizer::CharTokenizer(const CharacterSet& set) : CharTokenizer(at_least_one(set.characters())) {}

CharTokenizer CharTokenizer::from_texts(std::span<const std::string_view> texts) {
  CharacterSet set;
  for (const std::string_view text : texts)
    if (const auto at = set.add(text)) fail_not_utf8(text, *at);
  return CharTokenizer(set);
}

std::optional<std::size_t> CharTokenizer::safe_cut(std::string_view text, std::size_t at) const {
  const auto is_inside = [&] { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (at < text.size() && is_inside()) ++at;
  return at < text.size() ? std::optional(at) : std::nullopt;
}

void CharTokenizer::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  append_part(text, 0, text.size(), ids);
}

void CharTokenizer::append_part(std::string_view text, std::size_t begin, std::size_t end,
                                std::vector<std::int32_t>& ids) const {
  for (std::size_t at = begin; at < end;) {
    const auto character = decode_utf8(text, at);
    if (!character) fail_not_utf8(text, at);
    const std::int32_t id = character->value < ids_.size() ? ids_[character->value] : -1;
    if (id < 0)
      fail(ExitCode::data, "tokenizer",
           "the character {} at byte {} is outside the vocabulary of {} characters; expected characters of the "
           "training text",
           describe_character(character->value), at, characters_.size());
    ids.push_back(id);
    at += character->bytes;
  }
}

void CharTokenizer::append_bytes(std::int32_t id, std::string& text) const {
  append_utf8(text, characters_[static_cast<std::size_t>(id)]);
}

}  // namespace trireme
