// The steps by which a tokenizer of Hugging Face prepares a text for its merges: normalizers change it, pre-tokenizers
// cut it into words.
// Read next: data/pipeline_tokenizer.h, which runs them; data/hugging_face.cpp, which reads them from tokenizer.json.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/normal_form.h"
#include "data/regex_pattern.h"
#include "data/word_patterns.h"

namespace trireme {

/// A step that changes a text.
struct NormalizerStep {
  /// What it does.
  enum class Kind {
    form,     ///< a normal form of Unicode
    lower,    ///< lower case
    prepend,  ///< puts `to` in front of a text that is not empty
    replace   ///< replaces each `from`, or each match of `regex`, with `to`
  };
  Kind kind = Kind::form;
  NormalForm form = NormalForm::nfc;
  std::string from = {}, to = {};
  std::shared_ptr<const RegexPattern> regex = {};
};

/// What becomes of the matches of a cut.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A step that cuts a text into pieces.
struct SplitStep {
  /// Where it cuts.
  enum class Kind {
    words,      ///< cuts by a known pattern
    regex,      ///< cuts by `regex` or by the text `delimiter`, as `behavior` says
    add_space,  ///< puts a space in front of a piece that does not begin with one
    digits,     ///< cuts digits off: each, or runs of them
    metaspace   ///< writes `delimiter` for each space, and cuts before each of them
  };
  /// Which pieces begin with the delimiter.
  enum class Prepend { never, first, always };
  Kind kind = Kind::words;
  WordPattern pattern = WordPattern::gpt2;
  std::shared_ptr<const RegexPattern> regex = {};
  std::string delimiter = {};
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  ///< cuts between the matches, as if these were the text
  bool each_digit = false;
  Prepend prepend = Prepend::never;  ///< metaspace: where `delimiter` is put in front of a piece
  bool cuts = true;                  ///< metaspace: whether it cuts
};

/// A piece of a text. `begins`: it begins where the whole text does.
struct TextPiece {
  std::string_view text;
  bool begins = true;
};

/// The text after all steps; `storage` holds it where a step changes it. `text` is UTF-8.
std::string_view normalized(const std::vector<NormalizerStep>& steps, std::string_view text, std::string& storage);

/// A part of a text, and whether it is a match.
struct MatchedRange {
  std::size_t begin, end;
  bool matches;
};
/// Cuts `text` at the matches of the step, then merges or drops ranges as its behavior says. In order.
std::vector<MatchedRange> matched_ranges(const SplitStep& step, std::string_view text);

/// Where the next run of digits, or the digit, begins from `at` on; its end is in `end`.
std::size_t next_digits(std::string_view text, std::size_t at, bool each, std::size_t& end);

/// Replaces all `from` in `text` with `to`.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// Calls f(word) for the words that steps[first], steps[first + 1], ... make of the piece, in order. Empty ones are
/// left out. The text is UTF-8.
template <class F>
void for_each_piece(const std::vector<SplitStep>& steps, std::size_t first, TextPiece piece, const F& f) {
  if (piece.text.empty()) return;
  if (first == steps.size()) return f(piece.text);
  const SplitStep& step = steps[first];
  const char* const begin = piece.text.data();
  const auto next = [&](std::string_view text) {
    for_each_piece(steps, first + 1, {text, piece.begins && text.data() == begin}, f);
  };
  switch (step.kind) {
    case SplitStep::Kind::words:
      if (first + 1 == steps.size()) return for_each_word(step.pattern, piece.text, f);
      return for_each_word(step.pattern, piece.text, next);
    case SplitStep::Kind::regex:
      for (const MatchedRange& range : matched_ranges(step, piece.text))
        next(piece.text.substr(range.begin, range.end - range.begin));
      return;
    case SplitStep::Kind::add_space: {
      if (piece.text.front() == ' ') return next(piece.text);
      const std::string longer = " " + std::string(piece.text);
      return for_each_piece(steps, first + 1, {longer, piece.begins}, f);
    }
    case SplitStep::Kind::digits:
      for (std::size_t at = 0, end = 0; at < piece.text.size(); at = end) {
        const std::size_t digits = next_digits(piece.text, at, step.each_digit, end);
        next(piece.text.substr(at, digits - at));
        next(piece.text.substr(digits, end - digits));
      }
      return;
    case SplitStep::Kind::metaspace: {
      std::string text = replaced(piece.text, " ", step.delimiter);
      const bool prepends =
          step.prepend == SplitStep::Prepend::always || (step.prepend == SplitStep::Prepend::first && piece.begins);
      if (prepends && !text.starts_with(step.delimiter)) text.insert(0, step.delimiter);
      const std::string_view whole = text;
      for (std::size_t at = 0, end = 0; at < whole.size(); at = end) {
        end = step.cuts ? std::min(whole.find(step.delimiter, at + 1), whole.size()) : whole.size();
        for_each_piece(steps, first + 1, {whole.substr(at, end - at), piece.begins && at == 0}, f);
      }
      return;
    }
  }
}

}  // namespace trireme
