// The patterns by which byte-level BPE cuts text into words, as loops over characters: what a regular expression would
// match, several times faster, and with the Unicode tables of data/unicode.h.
//
// gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+            (Radford et al. 2019)
// llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
//         \s+(?!\S)|\s+                                                                         (Llama 3)
// cl100k  as llama3, but the spaces at the end of the text are one word                          (tiktoken, for GPT-4)
// qwen2   as llama3, with \p{N} instead of \p{N}{1,3}                                      (Qwen2, Qwen3)
// o200k   letters in words that are upper case, then lower case, then a contraction (tiktoken's encoding of GPT-4o):
//         [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//         [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//         \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// tests/data/word_patterns_test.cpp compares each with its regular expression.
// Read next: data/bpe_model.h, which turns words into ids.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "data/unicode.h"
#include "data/utf8.h"

namespace trireme {

/// The patterns at the top of this file.
enum class WordPattern { gpt2, llama3, cl100k, qwen2, o200k };

/// The pattern that this regular expression is, written as in published files; nothing if it is another one.
std::optional<WordPattern> known_pattern(std::string_view regular_expression);
/// The regular expression of a pattern.
std::string_view regular_expression(WordPattern pattern);

/// One word after the other, of a text that is UTF-8.
class WordScanner {
 public:
  explicit WordScanner(std::string_view text) : text_(text), classes_(char_classes().data()) {}

  /// Where the word ends that begins at byte `at`, which is less than the text's size.
  template <WordPattern pattern>
  std::size_t word_end(std::size_t at) const {
    if constexpr (pattern == WordPattern::gpt2) {
      return gpt2_end(at);
    } else {
      return later_end<pattern>(at);
    }
  }

 private:
  struct Character {
    CharClass kind = 0;
    std::size_t end = 0;  // the byte behind it
    char ascii = 0;       // 0: it is not ASCII
  };

  /// The character at `at`; of no class at the end of the text.
  Character character(std::size_t at) const {
    if (at >= text_.size()) return {0, at, 0};
    const auto byte = [&](std::size_t offset) { return static_cast<unsigned char>(text_[at + offset]) & 0x3FU; };
    const auto lead = static_cast<unsigned char>(text_[at]);
    if (lead < 0x80) return {classes_[lead], at + 1, text_[at]};
    if (lead < 0xE0) return {classes_[(lead & 0x1FU) << 6 | byte(1)], at + 2, 0};
    if (lead < 0xF0) return {classes_[(lead & 0x0FU) << 12 | byte(1) << 6 | byte(2)], at + 3, 0};
    return {classes_[(lead & 0x07U) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3)], at + 4, 0};
  }

  /// Where the run of characters with a class of `any_of` ends; not beyond `most` characters.
  std::size_t run_end(std::size_t at, CharClass any_of, std::size_t most = static_cast<std::size_t>(-1)) const {
    for (; most > 0; --most) {
      const Character c = character(at);
      if ((c.kind & any_of) == 0) break;
      at = c.end;
    }
    return at;
  }

  /// Where the run of [^\s\p{L}\p{N}] ends.
  std::size_t signs_end(std::size_t at) const {
    while (at < text_.size()) {
      const Character c = character(at);
      if ((c.kind & kNoSign) != 0) break;
      at = c.end;
    }
    return at;
  }

  bool is_sign(std::size_t at) const { return at < text_.size() && (character(at).kind & kNoSign) == 0; }

  /// \s+(?!\S)|\s+ : spaces up to the last, which belongs to the next word; all of them at the end of the text.
  std::size_t spaces_end(std::size_t at) const {
    std::size_t last = at, end = at;
    for (Character c = character(at); (c.kind & char_class::space) != 0; c = character(end)) {
      last = end;
      end = c.end;
    }
    return end == text_.size() || last == at ? end : last;
  }

  /// The bytes of a contraction at `at`, where an apostrophe stands; 0: none. `any_case`: also "'S", and U+017F for s.
  std::size_t contraction(std::size_t at, bool any_case) const {
    const auto letter = [&](std::size_t offset) {
      if (at + offset >= text_.size()) return '\0';
      const char c = text_[at + offset];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    return any_case && text_.substr(at + 1, 2) == "\xC5\xBF" ? 3 : 0;
  }

  std::size_t gpt2_end(std::size_t at) const {
    const Character first = character(at);
    if (first.ascii == '\'') {
      const std::size_t length = contraction(at, false);
      if (length > 0) return at + length;
    }
    const std::size_t begin = first.ascii == ' ' ? first.end : at;
    const CharClass kind = first.ascii == ' ' ? character(begin).kind : first.kind;
    if ((kind & char_class::letter) != 0) return run_end(begin, char_class::letter);
    if ((kind & char_class::number) != 0) return run_end(begin, char_class::number);
    if (begin < text_.size() && (kind & char_class::space) == 0) return signs_end(begin);
    return spaces_end(at);
  }

  template <WordPattern pattern>
  std::size_t later_end(std::size_t at) const {
    const Character first = character(at);
    constexpr bool cased = pattern == WordPattern::o200k;
    if (!cased && first.ascii == '\'') {
      const std::size_t length = contraction(at, true);
      if (length > 0) return at + length;
    }
    const bool is_letter = (first.kind & char_class::letter) != 0, is_number = (first.kind & char_class::number) != 0;
    const bool may_precede = !is_letter && !is_number && first.ascii != '\r' && first.ascii != '\n';
    if constexpr (cased) {
      const std::size_t end = cased_end(at, may_precede ? first.end : at, first.kind);
      if (end > at) return end;
    } else {
      const std::size_t begin = may_precede ? first.end : at;
      const std::size_t end = run_end(begin, char_class::letter);
      if (end > begin) return end;
    }
    if (is_number) return run_end(at, char_class::number, pattern == WordPattern::qwen2 ? 1 : 3);
    const std::size_t signs = first.ascii == ' ' && is_sign(first.end) ? first.end : at;
    if (is_sign(signs)) {
      std::size_t end = signs_end(signs);
      while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n' || (cased && text_[end] == '/'))) ++end;
      return end;
    }
    if constexpr (pattern == WordPattern::cl100k) {
      const std::size_t end = run_end(at, char_class::space);
      if (end == text_.size()) return end;
    }
    std::size_t line = at;  // behind the last line end of the spaces
    for (Character c = first; (c.kind & char_class::space) != 0; c = character(c.end))
      if (c.ascii == '\r' || c.ascii == '\n') line = c.end;
    return line > at ? line : spaces_end(at);
  }

  /// The end of a word of o200k that begins at `at`; `at` if there is none. Its letters begin at `after`, behind the
  /// character that may precede them, or else at `at`.
  std::size_t cased_end(std::size_t at, std::size_t after, CharClass first) const {
    const bool tries_both = after > at && (first & char_class::mark) != 0;  // a mark may precede, or begin the word
    for (const std::size_t begin : {after, at}) {
      std::size_t upper = begin, lower = begin;  // where the run of upper letters ends; where its last lower one ends
      for (Character c = character(upper); (c.kind & char_class::upper) != 0; c = character(upper)) {
        upper = c.end;
        if ((c.kind & char_class::lower) != 0) lower = upper;
      }
      const std::size_t end = run_end(upper, char_class::lower);
      if (end > upper) return with_contraction(end);
      if (lower > begin) return with_contraction(lower);
      if (!tries_both) return upper > begin ? with_contraction(upper) : at;
    }
    return at;  // not reached by a mark: it is a lower letter itself
  }

  std::size_t with_contraction(std::size_t end) const {
    return end < text_.size() && text_[end] == '\'' ? end + contraction(end, true) : end;
  }

  static constexpr CharClass kNoSign = char_class::space | char_class::letter | char_class::number;

  std::string_view text_;
  const CharClass* classes_;
};

/// Calls f(word) for the words of a text that is UTF-8, in order; together they are the text.
template <WordPattern pattern, class F>
void for_each_word_of(std::string_view text, const F& f) {
  const WordScanner scanner(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.word_end<pattern>(at);
    f(text.substr(at, end - at));
    at = end;
  }
}

/// The same for a pattern that is known at run time.
template <class F>
void for_each_word(WordPattern pattern, std::string_view text, const F& f) {
  switch (pattern) {
    case WordPattern::gpt2:
      return for_each_word_of<WordPattern::gpt2>(text, f);
    case WordPattern::llama3:
      return for_each_word_of<WordPattern::llama3>(text, f);
    case WordPattern::cl100k:
      return for_each_word_of<WordPattern::cl100k>(text, f);
    case WordPattern::qwen2:
      return for_each_word_of<WordPattern::qwen2>(text, f);
    case WordPattern::o200k:
      return for_each_word_of<WordPattern::o200k>(text, f);
  }
}

/// The same for GPT-2's words of bytes that need not be UTF-8. No token crosses their ends. A byte that is not part of
/// UTF-8 is a word of its own, and the text on either side of it is cut as if it ended there.
template <class F>
void for_each_bpe_word(std::string_view text, const F& f) {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    for_each_word_of<WordPattern::gpt2>(text.substr(0, valid), f);
    text.remove_prefix(valid);
    if (text.empty()) break;
    f(text.substr(0, 1));
    text.remove_prefix(1);
  }
}

}  // namespace trireme
