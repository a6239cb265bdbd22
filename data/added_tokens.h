// Added tokens: texts that are one token wherever they occur, whatever the merges would make of them, such as
// <|endoftext|>.
// Read next: data/pipeline_tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A text that is one token.
struct AddedToken {
  std::int32_t id = 0;
  std::string content = {};
  bool special = false;                 ///< ordinary text cannot spell it: see Tokenizer::append_ids
  bool lstrip = false, rstrip = false;  ///< takes the spaces on its left or right along
  bool single_word = false;             ///< not within a word
  bool normalized = false;              ///< it is looked for in the normalized text, and normalized itself
};

/// Finds added tokens in a text: the leftmost first, and the longest of those that begin at one place.
class AddedTokenFinder {
 public:
  /// `patterns[i]` is what tokens[i] looks like in the text.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  bool empty() const { return order_.empty(); }
  /// Calls on_text(begin, end) for text between tokens and on_token(id) for tokens, in order. Special tokens are
  /// ordinary text unless `specials`.
  void split(std::string_view text, bool specials, const std::function<void(std::size_t, std::size_t)>& on_text,
             const std::function<void(std::int32_t)>& on_token) const;

 private:
  struct Found {
    std::size_t begin, end;
    const AddedToken* token;
  };
  /// The next one from `at` on; its token is null if there is none.
  Found find(std::string_view text, std::size_t at) const;
  const AddedToken* longest_at(std::string_view text, std::size_t at, std::size_t& length) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::pair<std::string, std::size_t>> order_;  // pattern, index of its token; sorted
  std::array<bool, 256> first_bytes_{};
  int only_first_byte_ = -1;  // if all patterns begin with it
};

}  // namespace trireme
