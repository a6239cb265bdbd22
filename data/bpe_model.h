// The merges of byte-pair encoding, applied to one word: a word starts as its bytes or characters, and the adjacent
// pair with the lowest rank is merged into one token until no adjacent pair has a rank.
// Read next: data/bpe_tokenizer.h and data/pipeline_tokenizer.h, which cut a text into words.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/word_cache.h"

namespace trireme {

/// Finds the id of a text among `tokens`, to which it refers: a hash table that holds ids only.
class TokenTable {
 public:
  explicit TokenTable(const std::vector<std::string>& tokens) : tokens_(&tokens) {}

  /// Adds tokens[id]. Returns the id that the same text has already, or `id`.
  std::int32_t insert(std::int32_t id);
  /// -1: the text is no token.
  std::int32_t find(std::string_view text) const;

 private:
  std::size_t slot_of(std::string_view text) const;

  const std::vector<std::string>* tokens_;
  std::vector<std::int32_t> slots_;  // -1: free; the number is a power of two
  std::size_t used_ = 0;
};

/// A vocabulary, and what becomes of two tokens side by side.
struct BpeMerges {
  std::vector<std::string> tokens;  ///< the text of each id; empty: the id is not in use
  /// (left id, right id) by rank; the concatenation is a token.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
};

/// How words become tokens.
struct BpeOptions {
  /// A word starts as its bytes, all of which are tokens. False: as its characters.
  bool by_bytes = true;
  /// A pair's rank is the id of what it makes, as in tiktoken's files, and there are no merges.
  bool ranked_by_id = false;
  bool whole_words = false;                    ///< a word that is a token is that token, whatever the merges make of it
  std::vector<bool> left_out = {};             ///< tokens that no word becomes; empty: none
  std::optional<std::int32_t> unknown = {};    ///< by characters: for a character that is no token
  bool fuse_unknown = false;                   ///< several such characters in a row are one unknown token
  std::vector<std::int32_t> byte_tokens = {};  ///< by characters: 256 tokens for the bytes of such characters
  /// All merges that make one token have the rank of the first of them, as in SentencePiece and llama.cpp.
  bool rank_by_token = false;
  std::vector<std::int32_t> ranks = {};  ///< of each merge, if not its place in the list
};

/// The merges, as a table; see the top of this file. Threads may share one, each with a cache of its own.
class BpeModel {
 public:
  /// Throws ExitCode::data, naming `source` and the entry, unless tokens are distinct, merges are distinct, each merge
  /// makes a token, and single bytes are tokens where words start as bytes.
  BpeModel(BpeMerges merges, BpeOptions options, const std::string& source);
  BpeModel(const BpeModel&) = delete;
  BpeModel& operator=(const BpeModel&) = delete;

  const std::vector<std::string>& tokens() const { return data_.tokens; }
  const std::vector<std::pair<std::int32_t, std::int32_t>>& merges() const { return data_.merges; }
  const BpeMerges& data() const { return data_; }
  const BpeOptions& options() const { return options_; }
  std::int32_t find(std::string_view text) const { return table_.find(text); }  ///< -1: the text is no token
  /// True if no word with two such bytes side by side ever becomes a token that holds both, known or unknown.
  bool never_joins(bool (*left)(unsigned char), bool (*right)(unsigned char)) const;

  /// Appends the ids of a word.
  void append_word(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
    if (word.size() > WordCache::longest || word.empty()) return merge_word(word, ids);
    WordCache::Slot& slot = cache.slot(word);
    if (!slot.holds(word) && !fill(slot, word)) return merge_word(word, ids);
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
  }
  /// A byte that is part of no character.
  void append_broken_byte(unsigned char byte, std::vector<std::int32_t>& ids) const;

  /// Of words whose ids are known.
  WordCaches& caches() const { return caches_; }

 private:
  struct Merge {
    std::uint64_t pair = 0;  // left << 32 | right
    std::int32_t rank = -1, result = -1;
  };
  struct Symbols;

  void insert_tokens(const std::string& source);
  void insert_merges(const std::string& source);
  void derive_merges(const std::string& source);
  void reserve_merges(std::size_t count);
  bool add_merge(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t result);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  bool fill(WordCache::Slot& slot, std::string_view word) const;
  void merge_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  void first_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void merge_few(std::vector<std::int32_t>& symbols) const;
  void merge_many(std::vector<std::int32_t>& symbols) const;

  BpeMerges data_;
  BpeOptions options_;
  TokenTable table_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<Merge> pairs_;  // a hash table; rank -1: free; the number is a power of two
  mutable WordCaches caches_;
};

}  // namespace trireme
