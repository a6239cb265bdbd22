// The character tokenizer: the vocabulary is the set of Unicode code points of the training text, in increasing order.
// This is the smallest vocabulary of characters that spells every word, for small models.
// Read next: data/bpe_tokenizer.h.
#pragma once

#include "data/tokenizer.h"

namespace trireme {

/// The characters that occur in texts.
class CharacterSet {
 public:
  /// Adds those of a text. The place of its first byte that is not UTF-8; nothing if there is none.
  std::optional<std::size_t> add(std::string_view text);
  std::vector<char32_t> characters() const;  ///< in increasing order

 private:
  std::vector<bool> seen_ = std::vector<bool>(0x110000);
};

/// One token per character of the text it was made from.
class CharTokenizer : public Tokenizer {
 public:
  /// `characters`: increasing, each a Unicode scalar value, at least one.
  explicit CharTokenizer(std::vector<char32_t> characters);
  /// Throws ExitCode::data if there are none.
  explicit CharTokenizer(const CharacterSet& set);
  /// The characters of all texts together. Throws ExitCode::data, with the byte offset, for what is not UTF-8.
  static CharTokenizer from_texts(std::span<const std::string_view> texts);

  std::string_view name() const override { return "char"; }
  std::int32_t vocab_size() const override { return static_cast<std::int32_t>(characters_.size()); }
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const override;
  std::optional<std::size_t> safe_cut(std::string_view text, std::size_t at) const override;
  std::string to_json() const override;

 protected:
  void append_bytes(std::int32_t id, std::string& text) const override;
  void append_part(std::string_view text, std::size_t begin, std::size_t end,
                   std::vector<std::int32_t>& ids) const override;

 private:
  std::vector<char32_t> characters_;  // by id
  std::vector<std::int32_t> ids_;     // by code point up to the largest; -1 where there is none
};

}  // namespace trireme
