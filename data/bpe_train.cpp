// BPE training: words are counted once; after that each merge touches only the words that contain its pair.
#include "data/bpe_train.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "core/error.h"
#include "data/bpe_split.h"

namespace trireme {

namespace {

using Id = std::int32_t;
using Pair = std::pair<Id, Id>;

constexpr std::int64_t kLeastCount = 2;  // merging what occurs once learns nothing

struct Word {
  std::vector<Id> ids;
  std::int64_t count;
};

/// The distinct words and how often each occurs, in byte order, so that hashing does not affect the result.
std::vector<Word> count_words(std::span<const std::string_view> texts) {
  std::unordered_map<std::string_view, std::int64_t> counts;  // keys point into the texts
  for (const std::string_view text : texts) for_each_bpe_word(text, [&](std::string_view word) { ++counts[word]; });
  std::vector<std::pair<std::string_view, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  words.reserve(sorted.size());
  for (const auto& [text, count] : sorted) {
    Word word{{}, count};
    for (const char c : text) word.ids.push_back(static_cast<unsigned char>(c));
    words.push_back(std::move(word));
  }
  return words;
}

class MergeTrainer {
 public:
  explicit MergeTrainer(std::span<const std::string_view> texts) : words_(count_words(texts)) {
    for (std::size_t byte = 0; byte < 256; ++byte) add_token(std::string(1, static_cast<char>(byte)));
    for (std::size_t w = 0; w < words_.size(); ++w) count_pairs(w, +1, [](Pair) { return true; });
    for (const auto& [key, entry] : pairs_) queue_.push({entry.count, key});
  }

  /// Makes one more merge. False when no pair occurs often enough.
  bool step() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const std::int64_t count = pairs_.at(best.pair).count;
      if (count == best.count && count >= kLeastCount) {
        merge(best.pair);
        return true;
      }
      // Counts that fell since they were queued are queued again at their true value.
      if (count < best.count && count >= kLeastCount) queue_.push({count, best.pair});
    }
    return false;
  }

  Id tokens() const { return static_cast<Id>(vocabulary_.tokens.size()); }

  BpeVocabulary finish() {
    vocabulary_.end_of_text = add_token(std::string(end_of_text_name));
    return std::move(vocabulary_);
  }

 private:
  struct PairHash {
    std::size_t operator()(const Pair& pair) const {
      return (static_cast<std::size_t>(pair.first) * 0x9E3779B97F4A7C15U) ^
             (static_cast<std::size_t>(pair.second) * 0xC2B2AE3D27D4EB4FU);
    }
  };
  struct Entry {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // where it occurs or once occurred
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    // The queue's top is the largest: the rule at the top of bpe_train.h.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  Id add_token(std::string text) {
    const auto [place, is_new] = ids_.emplace(text, tokens());
    if (is_new) vocabulary_.tokens.push_back(std::move(text));
    return place->second;
  }

  /// Adds sign * word.count to the pairs of a word, and notes the word at those pairs that `note` selects.
  template <class Note>
  void count_pairs(std::size_t w, int sign, Note note) {
    const Word& word = words_[w];
    for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
      const Pair pair{word.ids[i], word.ids[i + 1]};
      Entry& entry = pairs_[pair];
      entry.count += sign * word.count;
      if (note(pair) && (entry.words.empty() || entry.words.back() != w)) entry.words.push_back(w);
    }
  }

  void merge(Pair pair) {
    const auto text = [&](Id id) { return vocabulary_.tokens[static_cast<std::size_t>(id)]; };
    // Two different pairs may spell the same bytes: then the second merge leads to the first one's token.
    const Id merged = add_token(text(pair.first) + text(pair.second));
    vocabulary_.merges.push_back(pair);
    const std::vector<std::size_t> words = std::move(pairs_.at(pair).words);
    std::vector<Pair> grown;
    for (const std::size_t w : words) {
      count_pairs(w, -1, [](Pair) { return false; });
      replace(words_[w].ids, pair, merged);
      count_pairs(w, +1, [&](Pair p) {
        const bool touched = p.first == merged || p.second == merged;
        if (touched) grown.push_back(p);
        return touched;
      });
    }
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const Pair& p : grown) queue_.push({pairs_.at(p).count, p});
  }

  /// Left to right, without overlap.
  static void replace(std::vector<Id>& ids, Pair pair, Id merged) {
    std::size_t to = 0;
    for (std::size_t from = 0; from < ids.size(); ++to) {
      const bool here = from + 1 < ids.size() && ids[from] == pair.first && ids[from + 1] == pair.second;
      ids[to] = here ? merged : ids[from];
      from += here ? 2 : 1;
    }
    ids.resize(to);
  }

  std::vector<Word> words_;
  BpeVocabulary vocabulary_;
  std::unordered_map<std::string, Id> ids_;
  std::unordered_map<Pair, Entry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

BpeVocabulary train_bpe(std::span<const std::string_view> texts, std::int32_t vocab_size) {
  constexpr Id kLeast = 257;
  if (vocab_size < kLeast)
    fail(ExitCode::usage, "bpe", "a vocabulary of {}; expected at least {}: 256 bytes and {}; change --vocab",
         vocab_size, kLeast, end_of_text_name);
  MergeTrainer trainer(texts);
  while (trainer.tokens() < vocab_size - 1) {
    if (!trainer.step())
      fail(ExitCode::usage, "bpe",
           "the text supports a vocabulary of {}, not {}: no pair of tokens occurs twice any more; "
           "lower --vocab or use more text",
           trainer.tokens() + 1, vocab_size);
  }
  return trainer.finish();
}

}  // namespace trireme
