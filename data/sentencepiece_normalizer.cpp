#include "data/sentencepiece_normalizer.h"

#include "core/error.h"
#include "data/utf8.h"

namespace trireme {

namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81", kReplacementCharacter = "\xEF\xBF\xBD";

bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
/// What byte led to the node; a leaf has more bits, and so equals no byte.
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFU; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel& model, const std::filesystem::path& path)
    : adds_space_(model.adds_space),
      removes_spaces_(model.removes_spaces),
      space_at_end_(model.space_at_end),
      space_(model.escapes_spaces ? kSpaceMark : " ") {
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == SentencePiece::Type::user_defined)
      kept_.add(model.pieces[id].text, static_cast<std::int32_t>(id));
  if (!model.rules.empty()) read_rules(model.rules, path);
  for (unsigned char byte = 0; byte < 128; ++byte) plain_[byte] = find_plain(byte);
}

void SentencePieceNormalizer::read_rules(std::string_view rules, const std::filesystem::path& path) {
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t byte = 4; byte-- > 0;) value = value << 8 | static_cast<unsigned char>(rules[at + byte]);
    return value;
  };
  const std::size_t size = rules.size() < 4 ? 0 : number(0);
  if (size == 0 || size % 4 != 0 || size > rules.size() - 4)
    fail(ExitCode::data, "tokenizer", "{}: rules of {} bytes that begin with a table of {}; expected whole units",
         path.string(), rules.size(), size);
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(number(at));
  replacements_ = rules.substr(4 + size);
  if (!replacements_.empty() && replacements_.back() != '\0') replacements_ += '\0';
}

/// The unit along a byte, and `node` moves to what follows it; null: no rule goes on like this.
const std::uint32_t* SentencePieceNormalizer::step(std::size_t& node, unsigned char byte) const {
  node ^= byte;
  if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return nullptr;
  const std::uint32_t* unit = &units_[node];
  node ^= offset_of(*unit);
  return unit;
}

std::size_t SentencePieceNormalizer::longest_rule(std::string_view text, std::uint32_t& value) const {
  if (units_.empty()) return 0;
  std::size_t length = 0, node = offset_of(units_[0]);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::uint32_t* unit = step(node, static_cast<unsigned char>(text[at]));
    if (unit == nullptr) break;
    if (!has_leaf(*unit)) continue;
    if (node >= units_.size() || value_of(units_[node]) >= replacements_.size()) break;
    length = at + 1;
    value = value_of(units_[node]);
  }
  return length;
}

/// Whether neither a rule nor a kept piece begins with this byte and ASCII behind it, or is this byte.
bool SentencePieceNormalizer::find_plain(unsigned char byte) const {
  if (kept_.step(0, byte).node >= 0) return false;
  if (units_.empty()) return true;
  std::size_t node = offset_of(units_[0]);
  const std::uint32_t* unit = step(node, byte);
  if (unit == nullptr) return true;
  for (unsigned char next = 1; next < 128; ++next)
    if (std::size_t behind = node; step(behind, next) != nullptr) return false;
  return !has_leaf(*unit);
}

/// Whether the character at `at` stays as it is.
bool SentencePieceNormalizer::is_plain(std::string_view text, std::size_t at) const {
  const bool ascii_follows = at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 128;
  return plain_[static_cast<unsigned char>(text[at])] && ascii_follows;
}

SentencePieceNormalizer::Replaced SentencePieceNormalizer::replace_first(std::string_view text) const {
  if (is_plain(text, 0)) return {text.substr(0, 1), 1};
  std::int32_t number = -1;
  if (const std::size_t bytes = kept_.longest(text, number); bytes > 0) return {text.substr(0, bytes), bytes};
  std::uint32_t value = 0;
  if (const std::size_t bytes = longest_rule(text, value); bytes > 0) return {replacements_.c_str() + value, bytes};
  const auto character = decode_utf8(text, 0);
  if (!character) return {kReplacementCharacter, 1};
  return {text.substr(0, character->bytes), character->bytes};
}

std::string SentencePieceNormalizer::normalized(std::string_view text) const {
  while (removes_spaces_ && !text.empty()) {
    const Replaced first = replace_first(text);
    if (first.by != " ") break;
    text.remove_prefix(first.bytes);
  }
  if (text.empty()) return {};
  std::string result;
  result.reserve(text.size() + text.size() / 2);  // a space becomes three bytes
  if (adds_space_ && !space_at_end_) result += space_;
  bool after_space = removes_spaces_;
  while (!text.empty()) {
    std::size_t plain = 0;  // bytes that are copied at once
    while (plain < text.size() && text[plain] != ' ' && is_plain(text, plain)) ++plain;
    if (plain > 0) {
      result += text.substr(0, plain);
      text.remove_prefix(plain);
      after_space = false;
      continue;
    }
    auto [by, bytes] = replace_first(text);
    while (after_space && by.starts_with(' ')) by.remove_prefix(1);
    for (const char c : by)
      if (c == ' ') {
        result += space_;
      } else {
        result += c;
      }
    if (!by.empty()) after_space = removes_spaces_ && by.ends_with(' ');
    text.remove_prefix(bytes);
  }
  while (removes_spaces_ && result.ends_with(space_)) result.resize(result.size() - space_.size());
  if (adds_space_ && space_at_end_) result += space_;
  return result;
}

}  // namespace trireme
