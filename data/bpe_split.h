// Splits bytes into GPT-2's words, also where they are not UTF-8.
// Read next: data/word_patterns.h, data/bpe_tokenizer.h.
#pragma once

#include <string_view>

#include "data/utf8.h"
#include "data/word_patterns.h"

namespace trireme {

/// Calls f(word) for the words of `text` in order; together they are the text. No token crosses their ends. A byte that
/// is not part of UTF-8 is a word of its own, and the text on either side of it is cut as if it ended there.
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
