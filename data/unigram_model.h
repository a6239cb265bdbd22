// Cuts a text into the pieces whose scores have the largest sum (Kudo, 2018), by dynamic programming over its places.
//
// The library of SentencePiece adds scores in f32, so where two ways to cut have nearly equal scores, rounding decides,
// and it depends on the sum so far. The ids here are the library's in these cases, too: what a word is cut into is only
// kept for later (data/word_cache.h) if the best way is better than all others by more than rounding can be.
// Read next: data/sentencepiece_tokenizer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "data/byte_trie.h"
#include "data/sentencepiece_file.h"
#include "data/word_cache.h"

namespace trireme {

/// The pieces of a model of unigrams, and their scores. See the top of this file. Threads may share one.
class UnigramModel {
 public:
  /// `byte_ids`: 256 pieces for the bytes of characters that are in no piece; empty: such characters are the unknown
  /// piece. Throws ExitCode::data, naming `path`, for pieces with too many different beginnings.
  UnigramModel(const SentencePieceModel& model, const std::vector<std::int32_t>& byte_ids,
               const std::filesystem::path& path);

  /// Appends the ids of a text that is normalized.
  void append_ids(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  /// The best way to a place of a text.
  struct Best {
    float sum = 0;
    std::int32_t id = -1;     // of the last piece; -1: not reached yet
    std::uint32_t bytes = 0;  // of it
  };
  /// What one text needs.
  struct Run {
    WordCache& cache;
    std::vector<std::int32_t>& ids;
    std::vector<Best> best = {};
    std::vector<std::size_t> ends = {};
    float sum = 0;  // of the scores so far
    bool after_unknown = false;
  };
  enum class Words { none, after_spaces, before_spaces };  // between which no piece is

  float score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }
  void append_word(std::string_view word, Run& run) const;
  void append_by_places(std::string_view text, Run& run) const;
  void append_piece(std::int32_t id, std::string_view text, Run& run) const;
  bool fill(WordCache::Slot& slot, std::string_view word) const;
  template <class Begin, class Piece>
  void for_each_piece(std::string_view text, const Begin& begins, const Piece& piece) const;

  ByteTrie pieces_;
  std::vector<float> scores_;  // by id
  float largest_score_ = 0;    // without its sign
  std::int32_t unknown_;
  std::vector<std::int32_t> byte_ids_;
  Words words_ = Words::none;
  mutable WordCaches caches_;
};

}  // namespace trireme
