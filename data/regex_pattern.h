// Regular expressions of tokenizer files. They are written for Oniguruma (Hugging Face's tokenizers) and are matched by
// PCRE2, with the character classes of data/unicode.h instead of PCRE2's own, older ones. Only what means the same
// in both is accepted.
// Read next: data/word_patterns.h, which is faster for the patterns of published models; data/text_steps.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

/// A compiled regular expression.
class RegexPattern {
 public:
  /// Accepts literals, the dot, the classes s, d and p{..} and their opposites, escaped signs, sets, groups (capturing
  /// or not, ignoring case, looking ahead or behind, atomic), alternatives and quantifiers, in at most 4096 bytes. The
  /// expression must not match an empty text. Throws ExitCode::data for others, with `where` in the message.
  RegexPattern(std::string_view expression, const std::string& where);
  ~RegexPattern();
  RegexPattern(RegexPattern&&) noexcept;
  RegexPattern(const RegexPattern&) = delete;
  RegexPattern& operator=(const RegexPattern&) = delete;

  /// Calls f(begin, end) for the matches in `text`, which is UTF-8, from left to right. Threads may share one pattern.
  /// Throws ExitCode::data if the expression needs too many steps on this text.
  void for_each_match(std::string_view text, const std::function<void(std::size_t, std::size_t)>& f) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace trireme
