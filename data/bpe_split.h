// Splits text into the words of byte-level BPE: GPT-2 cuts a text with one regular expression, and no token crosses a
// cut.
// Read next: data/bpe_tokenizer.h.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace trireme {

/// GPT-2's pattern (Radford et al. 2019; encoder.py of the released model), compiled by PCRE2 to machine code.
class BpeSplitter {
 public:
  BpeSplitter();
  ~BpeSplitter();
  BpeSplitter(BpeSplitter&&) noexcept;
  BpeSplitter(const BpeSplitter&) = delete;
  BpeSplitter& operator=(const BpeSplitter&) = delete;

  /// Calls f(word) for the words of `text` in order; together they are the text. A byte that is not part of UTF-8 is a
  /// word of its own, and the text on either side of it is cut as if it ended there. Threads may share one splitter.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& f) const;

 private:
  void split_valid(std::string_view text, const std::function<void(std::string_view)>& f) const;

  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace trireme
