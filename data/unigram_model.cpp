#include "data/unigram_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "data/metaspace_words.h"
#include "data/utf8.h"

namespace trireme {

namespace {

using Type = SentencePiece::Type;
constexpr float kUnknownPenalty = 10;
constexpr std::size_t kMostNodes = 2 << 20;  // their table then takes 64 MiB
// As in version 0.2.3 of the library: when a sum has grown beyond this, it is subtracted from all that may follow.
constexpr float kLargeSum = 100'000;
constexpr double kRounding = 0x1p-8;  // of one addition of numbers up to 2^17, of which kLargeSum is one

}  // namespace

UnigramModel::UnigramModel(const SentencePieceModel& model, const std::vector<std::int32_t>& byte_ids,
                           const std::filesystem::path& path)
    : scores_(model.pieces.size()), unknown_(model.unknown), byte_ids_(byte_ids) {
  bool begin = true, end = true;  // spaces stand only there in pieces
  float least = std::numeric_limits<float>::max();
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type == Type::normal) least = std::min(least, piece.score);
    if (piece.type != Type::normal && piece.type != Type::user_defined) continue;
    pieces_.add(piece.text, static_cast<std::int32_t>(id));
    if (pieces_.nodes() > kMostNodes)
      fail(ExitCode::data, "tokenizer", "{}: the pieces have more than {} different beginnings; expected fewer",
           path.string(), kMostNodes);
    // A user's piece has 0.1 for each byte but the first, as in version 0.2.3; versions up to 0.2.0 gave it -0.1.
    const double bytes_behind_first = static_cast<double>(piece.text.size() - 1);
    scores_[id] = piece.type == Type::normal ? piece.score : static_cast<float>(0.1 * bytes_behind_first);
    begin = begin && begins_with_metaspaces(piece.text);
    end = end && ends_with_metaspaces(piece.text);
  }
  scores_[static_cast<std::size_t>(unknown_)] = least - kUnknownPenalty;
  for (const float score : scores_) largest_score_ = std::max(largest_score_, std::abs(score));
  words_ = begin ? Words::after_spaces : end ? Words::before_spaces : Words::none;
}

void UnigramModel::append_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
  const WordCaches::Lease lease(caches_);
  Run run{lease.cache(), ids};
  const auto append = [&](std::string_view word) { append_word(word, run); };
  if (words_ == Words::none) {
    append_by_places(text, run);
  } else if (words_ == Words::after_spaces) {
    for_each_metaspace_word(text, append);
  } else {
    for_each_word_before_metaspace(text, append);
  }
}

/// Calls begins(begin) for each place where a character begins, then piece(begin, end, id) for the pieces there, of
/// which one is the character or the unknown piece.
template <class Begin, class Piece>
void UnigramModel::for_each_piece(std::string_view text, const Begin& begins, const Piece& piece) const {
  for (std::size_t begin = 0; begin < text.size();) {
    begins(begin);
    const std::size_t first = std::min(begin + utf8_bytes(text[begin]), text.size());
    bool has_first = false;
    ByteTrie::Step at{.node = 0};
    for (std::size_t end = begin; end < text.size();) {
      at = pieces_.step(at.node, static_cast<unsigned char>(text[end++]));
      if (at.node < 0) break;
      if (at.number < 0) continue;
      piece(begin, end, at.number);
      has_first = has_first || end == first;
    }
    if (!has_first) piece(begin, first, unknown_);
    begin = first;
  }
}

void UnigramModel::append_word(std::string_view word, Run& run) const {
  const float farthest = std::abs(run.sum) + largest_score_ * static_cast<float>(word.size());
  if (word.empty() || word.size() > WordCache::longest || !(farthest < kLargeSum)) return append_by_places(word, run);
  WordCache::Slot& slot = run.cache.slot(word);
  if (!slot.holds(word) && !fill(slot, word)) return append_by_places(word, run);
  if (slot.count == 0) return append_by_places(word, run);
  for (std::size_t i = 0; i < slot.count; ++i) {
    run.sum += score(slot.ids[i]);
    append_piece(slot.ids[i], {}, run);
  }
}

/// With no ids if rounding could decide; false if the word has too many ids for a slot, or bytes as ids.
bool UnigramModel::fill(WordCache::Slot& slot, std::string_view word) const {
  // The two best ways to each place. Sums are exact to 1e-9, beside which kRounding is large.
  struct Ways {
    double best = -std::numeric_limits<double>::infinity(), second = best;
    std::int32_t id = -1;
    std::size_t begin = 0;
  };
  std::array<Ways, WordCache::longest + 1> places{};
  places[0].best = 0;
  std::size_t characters = 0;
  for_each_piece(
      word, [&](std::size_t) { ++characters; },
      [&](std::size_t begin, std::size_t end, std::int32_t id) {
        const auto with_piece = static_cast<double>(score(id));
        Ways& there = places[end];
        const double best = places[begin].best + with_piece, second = places[begin].second + with_piece;
        if (best > there.best) {
          there = {best, std::max(there.best, second), id, begin};
        } else {
          there.second = std::max(there.second, best);
        }
      });
  std::vector<std::int32_t> ids;
  for (std::size_t end = word.size(); end > 0; end = places[end].begin) ids.push_back(places[end].id);
  std::reverse(ids.begin(), ids.end());
  const bool has_bytes = !byte_ids_.empty() && std::find(ids.begin(), ids.end(), unknown_) != ids.end();
  if (ids.size() > WordCache::most_ids || has_bytes) return false;
  // Each way adds at most as many scores as there are characters, and each addition rounds.
  const bool decided =
      places[word.size()].best - places[word.size()].second > 2 * kRounding * static_cast<double>(characters);
  if (!decided) ids.clear();
  slot.put(word, ids);
  return true;
}

void UnigramModel::append_by_places(std::string_view text, Run& run) const {
  std::vector<Best>& best = run.best;
  best.assign(text.size() + 1, {});
  best[0].sum = run.sum;
  std::size_t farthest = 0;
  for_each_piece(
      text,
      [&](std::size_t begin) {
        const float sum = best[begin].sum;
        if (std::abs(sum) <= kLargeSum) return;
        for (std::size_t end = begin; end <= farthest; ++end)
          if (end == begin || best[end].id >= 0) best[end].sum -= sum;
      },
      [&](std::size_t begin, std::size_t end, std::int32_t id) {
        const float sum = score(id) + best[begin].sum;
        Best& there = best[end];
        farthest = std::max(farthest, end);
        if (there.id < 0 || sum > there.sum) there = {sum, id, static_cast<std::uint32_t>(end - begin)};
      });
  run.sum = best[text.size()].sum;
  run.ends.clear();
  for (std::size_t end = text.size(); end > 0; end -= best[end].bytes) run.ends.push_back(end);
  for (std::size_t i = run.ends.size(); i-- > 0;) {
    const Best& piece = best[run.ends[i]];
    append_piece(piece.id, text.substr(run.ends[i] - piece.bytes, piece.bytes), run);
  }
}

/// A run of unknown characters becomes one unknown id or, with byte fallback, the ids of its bytes in `text`.
void UnigramModel::append_piece(std::int32_t id, std::string_view text, Run& run) const {
  const bool is_unknown = id == unknown_;
  if (is_unknown && !byte_ids_.empty()) {
    for (const char c : text) run.ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  } else if (!is_unknown || !run.after_unknown) {
    run.ids.push_back(id);
  }
  run.after_unknown = is_unknown;
}

}  // namespace trireme
