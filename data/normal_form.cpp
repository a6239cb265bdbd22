// Text is copied as it is, except around characters that may change: there the stretch from the last unaffected
// character before them to the next one after them is decomposed, put in order and composed again.
#include "data/normal_form.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "data/unicode_data.h"
#include "data/utf8.h"

namespace trireme {

namespace {

constexpr char32_t kCodePointsEnd = 0x110000;
/// What bytes that are not UTF-8 are while characters are put in order: a value beyond all characters, plus the byte.
constexpr char32_t kBroken = kCodePointsEnd;

/// Hangul syllables are composed by arithmetic: Unicode Standard, section 3.12.
namespace hangul {
constexpr char32_t syllables = 0xAC00, leading = 0x1100, vowels = 0x1161, trailing = 0x11A7;
constexpr char32_t vowel_count = 21, trailing_count = 28, leading_count = 19;
constexpr char32_t per_leading = vowel_count * trailing_count, count = leading_count * per_leading;
bool is_syllable(char32_t c) { return c >= syllables && c < syllables + count; }
bool is_vowel(char32_t c) { return c >= vowels && c < vowels + vowel_count; }
bool is_trailing(char32_t c) { return c > trailing && c < trailing + trailing_count; }
}  // namespace hangul

class NormalTables {
 public:
  NormalTables() : classes_(kCodePointsEnd), affected_(kCodePointsEnd) {
    for (const std::uint32_t entry : unicode_data::combining_classes())
      classes_[entry >> 8] = static_cast<std::uint8_t>(entry & 0xFF);
    read(unicode_data::canonical(), canonical_);
    read(unicode_data::compatible(), compatible_);
    const auto pairs = unicode_data::compositions();
    for (std::size_t i = 0; i + 2 < pairs.size(); i += 3)
      compositions_.emplace(key(pairs[i], pairs[i + 1]), pairs[i + 2]);
    mark_affected();
  }

  std::uint8_t combining_class(char32_t c) const { return c < kCodePointsEnd ? classes_[c] : 0; }
  bool affected(char32_t c, NormalForm form) const {
    return c < kCodePointsEnd && (affected_[c] >> static_cast<int>(form) & 1) != 0;
  }

  void append_decomposed(char32_t c, bool compatible, std::u32string& out) const {
    if (hangul::is_syllable(c)) {
      const char32_t index = c - hangul::syllables;
      out.push_back(hangul::leading + index / hangul::per_leading);
      out.push_back(hangul::vowels + index % hangul::per_leading / hangul::trailing_count);
      if (index % hangul::trailing_count != 0) out.push_back(hangul::trailing + index % hangul::trailing_count);
      return;
    }
    if (compatible) {
      if (const auto found = compatible_.find(c); found != compatible_.end()) {
        out += found->second;
        return;
      }
    }
    const auto found = canonical_.find(c);
    found == canonical_.end() ? out += c : out += found->second;
  }

  /// The character that two make together; 0: none.
  char32_t composed(char32_t first, char32_t second) const {
    using namespace hangul;
    if (first >= leading && first < leading + leading_count && is_vowel(second))
      return syllables + (first - leading) * per_leading + (second - vowels) * trailing_count;
    if (is_syllable(first) && (first - syllables) % trailing_count == 0 && is_trailing(second))
      return first + (second - trailing);
    const auto found = compositions_.find(key(first, second));
    return found == compositions_.end() ? 0 : found->second;
  }

 private:
  static std::uint64_t key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

  static void read(std::span<const std::uint32_t> entries, std::unordered_map<char32_t, std::u32string>& texts) {
    for (std::size_t i = 0; i < entries.size();) {
      const std::size_t length = entries[i] >> 24;
      std::u32string& text = texts[static_cast<char32_t>(entries[i] & 0xFFFFFF)];
      for (std::size_t k = 1; k <= length; ++k) text += static_cast<char32_t>(entries[i + k]);
      i += 1 + length;
    }
  }

  static constexpr int bit(NormalForm form) { return 1 << static_cast<int>(form); }
  void mark(char32_t c, int forms) { affected_[c] = static_cast<std::uint8_t>(affected_[c] | forms); }

  void mark_affected() {
    constexpr int composed = bit(NormalForm::nfc) | bit(NormalForm::nfkc);
    constexpr int decomposed = bit(NormalForm::nfd) | bit(NormalForm::nfkd);
    constexpr int all = composed | decomposed;
    std::unordered_map<char32_t, bool> results;  // of a composition
    for (const auto& [pair, result] : compositions_) {
      mark(static_cast<char32_t>(pair & 0xFFFFFFFF), all);
      results.emplace(result, true);
    }
    for (char32_t c = 0; c < kCodePointsEnd; ++c) {
      if (classes_[c] != 0 || hangul::is_vowel(c) || hangul::is_trailing(c)) mark(c, all);
      if (hangul::is_syllable(c)) mark(c, decomposed);
    }
    for (const auto& [c, text] : canonical_) {
      mark(c, decomposed);
      if (!results.contains(c)) mark(c, composed);
    }
    for (const auto& [c, text] : compatible_) mark(c, bit(NormalForm::nfkc) | bit(NormalForm::nfkd));
  }

  std::vector<std::uint8_t> classes_;
  std::vector<std::uint8_t> affected_;  // a bit for each form
  std::unordered_map<char32_t, std::u32string> canonical_, compatible_;
  std::unordered_map<std::uint64_t, char32_t> compositions_;
};

const NormalTables& tables() {
  static const NormalTables result;
  return result;
}

/// The character at `at`, or a broken byte as kBroken + byte; moves `at` behind it.
char32_t take_character(std::string_view text, std::size_t& at) {
  const auto character = decode_utf8(text, at);
  if (!character) return kBroken + static_cast<unsigned char>(text[at++]);
  at += character->bytes;
  return character->value;
}

void append_character(std::string& text, char32_t c) {
  if (c >= kBroken) {
    text += static_cast<char>(c - kBroken);
  } else {
    append_utf8(text, c);
  }
}

/// Sorts marks that follow each other by their class; equal ones keep their order.
void put_in_order(std::u32string& text) {
  const auto class_of = [](char32_t c) { return tables().combining_class(c); };
  for (std::size_t begin = 0; begin < text.size();) {
    if (class_of(text[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < text.size() && class_of(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) { return class_of(a) < class_of(b); });
    begin = end;
  }
}

/// Composes in place: each character with the last starter, unless one between them blocks it.
void compose(std::u32string& text) {
  constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t starter = none, to = 0;
  int last = -1;  // class of the last character kept after the starter; -1: none
  for (const char32_t c : text) {
    const int of_c = tables().combining_class(c);
    const bool blocked = last != -1 && last >= of_c;
    const char32_t whole = starter == none || blocked ? 0 : tables().composed(text[starter], c);
    if (whole != 0) {
      text[starter] = whole;
      continue;
    }
    if (of_c == 0) {
      starter = to;
      last = -1;
    } else {
      last = of_c;
    }
    text[to++] = c;
  }
  text.resize(to);
}

/// The first character from `at` on that the form may change; text.size() if none. `stable`: where the last character
/// before it begins that nothing changes.
std::size_t find_affected(std::string_view text, std::size_t at, NormalForm form, std::size_t& stable) {
  while (at < text.size()) {
    const std::size_t begin = at;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else if (tables().affected(take_character(text, at), form)) {
      return begin;
    }
    stable = begin;
  }
  return text.size();
}

}  // namespace

bool surely_normal(std::string_view text, NormalForm form) {
  std::size_t stable = 0;
  return find_affected(text, 0, form, stable) == text.size();
}

std::string normal_form(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  std::string result;
  result.reserve(text.size());
  std::u32string stretch;
  for (std::size_t copied = 0; copied < text.size();) {
    std::size_t begin = copied;
    std::size_t at = find_affected(text, copied, form, begin);
    if (at == text.size()) begin = at;
    result.append(text, copied, begin - copied);
    stretch.clear();
    for (std::size_t k = begin; k < at;) tables().append_decomposed(take_character(text, k), compatible, stretch);
    while (at < text.size()) {
      std::size_t next = at;
      const char32_t c = take_character(text, next);
      if (!tables().affected(c, form)) break;
      tables().append_decomposed(c, compatible, stretch);
      at = next;
    }
    put_in_order(stretch);
    if (composes) compose(stretch);
    for (const char32_t c : stretch) append_character(result, c);
    copied = at;
  }
  return result;
}

std::string lower_case(std::string_view text) {
  static const std::unordered_map<char32_t, std::u32string> lower = [] {
    std::unordered_map<char32_t, std::u32string> texts;
    const auto entries = unicode_data::lower_case();
    for (std::size_t i = 0; i < entries.size(); i += 1 + (entries[i] >> 24)) {
      std::u32string& to = texts[static_cast<char32_t>(entries[i] & 0xFFFFFF)];
      for (std::size_t k = 1; k <= entries[i] >> 24; ++k) to += static_cast<char32_t>(entries[i + k]);
    }
    return texts;
  }();
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = take_character(text, at);
    const auto found = lower.find(c);
    if (found == lower.end()) {
      append_character(result, c);
    } else {
      for (const char32_t to : found->second) append_utf8(result, to);
    }
  }
  return result;
}

}  // namespace trireme
