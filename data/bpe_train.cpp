// BPE training: words are counted once; after that each merge touches only the positions where its pair occurs.
#include "data/bpe_train.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "data/word_patterns.h"

namespace trireme {

namespace {

using Id = std::int32_t;
using Pair = std::pair<Id, Id>;
using Position = std::uint32_t;  // in Words

constexpr Id kBoundary = std::numeric_limits<Id>::max();
constexpr std::int64_t kLeastCount = 2;  // merging what occurs once learns nothing

/// The distinct words and how often each occurs, in byte order, so that hashing does not affect the result.
std::vector<std::pair<std::string_view, std::int64_t>> count_words(std::span<const std::string_view> texts) {
  std::unordered_map<std::string_view, std::int64_t> counts;  // keys point into the texts
  for (const std::string_view text : texts) for_each_bpe_word(text, [&](std::string_view word) { ++counts[word]; });
  std::vector<std::pair<std::string_view, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// The distinct words, one behind the other, as tokens that are joined in place.
///
/// A token stands at its first byte, and if it is longer also, as ~id, at its last one, so that the tokens on both
/// sides of a position are found at once. What is between these is negative. kBoundary stands before, between and
/// behind words.
class Words {
 public:
  explicit Words(std::span<const std::string_view> texts) {
    const auto words = count_words(texts);
    std::size_t size = 1;
    for (const auto& [word, count] : words) size += word.size() + 1;
    if (size > std::numeric_limits<Position>::max())
      fail(ExitCode::usage, "bpe", "the words that differ have {} bytes; expected at most {}; use less text", size,
           std::numeric_limits<Position>::max());
    tokens_.reserve(size);
    tokens_.push_back(kBoundary);
    for (const auto& [word, count] : words) {
      starts_.push_back(static_cast<Position>(tokens_.size()));
      counts_.push_back(count);
      for (const char c : word) tokens_.push_back(static_cast<unsigned char>(c));
      tokens_.push_back(kBoundary);
    }
  }

  /// The token that begins at a position; negative: none does.
  Id at(Position position) const { return tokens_[position]; }
  /// The token that ends before a position where one begins.
  Id before(Position position) const {
    return tokens_[position - 1] < 0 ? ~tokens_[position - 1] : tokens_[position - 1];
  }

  void put(Id token, Position begin, Position middle, Position end) {
    tokens_[middle] = ~token;
    tokens_[end - 1] = ~token;
    tokens_[begin] = token;
  }

  /// How often the word of a position occurs. Fast for increasing positions: `word` is where the last search ended.
  std::int64_t count(Position position, std::size_t& word) const {
    if (word + 1 < starts_.size() && starts_[word + 1] <= position)
      word = static_cast<std::size_t>(
                 std::upper_bound(starts_.begin() + static_cast<std::ptrdiff_t>(word), starts_.end(), position) -
                 starts_.begin()) -
             1;
    return counts_[word];
  }

  /// f(position, count) for each position of a word but its last.
  template <class F>
  void for_each_pair(const F& f) const {
    for (std::size_t word = 0; word < starts_.size(); ++word)
      for (Position position = starts_[word]; tokens_[position + 1] != kBoundary; ++position)
        f(position, counts_[word]);
  }

 private:
  std::vector<Id> tokens_;
  std::vector<Position> starts_;      // of each word
  std::vector<std::int64_t> counts_;  // of each word
};

class MergeTrainer {
 public:
  explicit MergeTrainer(std::span<const std::string_view> texts) : words_(texts) {
    for (std::size_t byte = 0; byte < 256; ++byte) add_token(std::string(1, static_cast<char>(byte)));
    std::vector<Entry*> entries(256 * 256);
    words_.for_each_pair([&](Position position, std::int64_t count) {
      const Pair pair{words_.at(position), words_.at(position + 1)};
      Entry*& entry = entries[static_cast<std::size_t>(pair.first) * 256 + static_cast<std::size_t>(pair.second)];
      if (entry == nullptr) entry = &pairs_[pair];
      entry->count += count;
      entry->positions.push_back(position);
    });
    for (const auto& [key, entry] : pairs_) queue_.push({entry.count, key});
  }

  /// Makes one more merge. False when no pair occurs often enough.
  bool step() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      ++work_;
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
  std::int64_t work() const { return work_; }

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
    std::vector<Position> positions;  // where it occurs or once occurred
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    // The queue's top is the largest: the rule at the top of bpe_train.h.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  /// A token on one side of the pair that is being merged: how often, and its new pair with the merged token.
  struct Neighbour {
    std::int64_t count = 0;
    Entry* grown = nullptr;
  };
  struct Side {
    std::vector<Neighbour> of;  // by token
    std::vector<Id> met;        // tokens whose `grown` is set
  };

  Id add_token(std::string text) {
    const auto [entry, is_new] = ids_.emplace(text, tokens());
    if (is_new) {
      lengths_.push_back(static_cast<Position>(text.size()));
      vocabulary_.tokens.push_back(std::move(text));
    }
    return entry->second;
  }

  Position length(Id token) const { return lengths_[static_cast<std::size_t>(token)]; }

  void meet(Side& side, Id token, Pair grown, Position position, std::int64_t count) {
    Neighbour& neighbour = side.of[static_cast<std::size_t>(token)];
    if (neighbour.grown == nullptr) {
      neighbour.grown = &pairs_[grown];
      side.met.push_back(token);
    }
    neighbour.count += count;
    neighbour.grown->positions.push_back(position);
  }

  void merge(Pair pair) {
    const auto text = [&](Id id) { return vocabulary_.tokens[static_cast<std::size_t>(id)]; };
    // Two different pairs may spell the same bytes: then the second merge leads to the first one's token.
    const Id merged = add_token(text(pair.first) + text(pair.second));
    vocabulary_.merges.push_back(pair);
    for (Side* side : {&left_, &right_}) side->of.resize(vocabulary_.tokens.size());
    Entry& entry = pairs_.at(pair);
    std::vector<Position> positions = std::move(entry.positions);
    entry.positions.clear();
    // From left to right, without overlap. They are out of order if an earlier merge led to one of these tokens again.
    if (!std::is_sorted(positions.begin(), positions.end())) std::sort(positions.begin(), positions.end());
    std::size_t word = 0;
    for (const Position position : positions) {
      ++work_;
      const Position middle = position + length(pair.first), end = middle + length(pair.second);
      if (words_.at(position) != pair.first || words_.at(middle) != pair.second) continue;
      const std::int64_t count = words_.count(position, word);
      entry.count -= count;
      words_.put(merged, position, middle, end);
      if (const Id left = words_.before(position); left != kBoundary)
        meet(left_, left, {left, merged}, position - length(left), count);
      if (const Id right = words_.at(end); right != kBoundary) meet(right_, right, {merged, right}, position, count);
    }
    // The neighbours' pairs with the tokens that were merged have become pairs with the merged one.
    for (const Id left : left_.met) recount(left_, left, {left, pair.first}, {left, merged});
    for (const Id right : right_.met) recount(right_, right, {pair.second, right}, {merged, right});
    for (Side* side : {&left_, &right_}) side->met.clear();
  }

  void recount(Side& side, Id token, Pair fallen, Pair grown) {
    const Neighbour neighbour = std::exchange(side.of[static_cast<std::size_t>(token)], {});
    pairs_.at(fallen).count -= neighbour.count;
    neighbour.grown->count += neighbour.count;
    if (neighbour.grown->count >= kLeastCount) queue_.push({neighbour.grown->count, grown});
  }

  Words words_;
  BpeVocabulary vocabulary_;
  std::vector<Position> lengths_;  // of tokens, in bytes
  std::unordered_map<std::string, Id> ids_;
  std::unordered_map<Pair, Entry, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  Side left_, right_;
  std::int64_t work_ = 0;
};

}  // namespace

BpeVocabulary train_bpe(std::span<const std::string_view> texts, std::int32_t vocab_size, std::int64_t* work) {
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
  if (work != nullptr) *work = trainer.work();
  return trainer.finish();
}

}  // namespace trireme
