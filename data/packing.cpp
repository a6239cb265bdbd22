#include "data/packing.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "data/shuffle.h"

namespace trireme {

namespace {

/// Calls f(begin, length) for each document: from one separator to before the next. Separators in a row belong to the
/// document behind them.
template <class F>
void for_each_document_of(const TokenRange& tokens, std::int32_t separator, const F& f) {
  constexpr std::int64_t block_tokens = 1 << 16;
  std::vector<std::int32_t> ids;
  std::int64_t begin = 0;
  bool after_separator = true;  // or at the beginning
  for (std::int64_t first = 0; first < tokens.count(); first += block_tokens) {
    ids.resize(static_cast<std::size_t>(std::min(block_tokens, tokens.count() - first)));
    tokens.read(first, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t at = first + static_cast<std::int64_t>(i);
      const bool starts = ids[i] == separator && !after_separator;
      after_separator = ids[i] == separator;
      if (!starts) continue;
      f(begin, at - begin);
      begin = at;
    }
  }
  if (begin < tokens.count()) f(begin, tokens.count() - begin);
}

/// Numbers below a limit, with the nearest member on either side of a number.
class NumberSet {
 public:
  explicit NumberSet(std::int64_t limit) : words_(static_cast<std::size_t>(limit / 64 + 1)) {}
  void insert(std::int64_t n) { words_[static_cast<std::size_t>(n / 64)] |= std::uint64_t{1} << (n % 64); }
  void erase(std::int64_t n) { words_[static_cast<std::size_t>(n / 64)] &= ~(std::uint64_t{1} << (n % 64)); }
  /// The smallest member that is at least n; -1: none.
  std::int64_t at_least(std::int64_t n) const {
    auto word = static_cast<std::size_t>(n / 64);
    std::uint64_t bits = word < words_.size() ? words_[word] & (~std::uint64_t{0} << (n % 64)) : 0;
    while (bits == 0 && ++word < words_.size()) bits = words_[word];
    return bits == 0 ? -1 : static_cast<std::int64_t>(word) * 64 + std::countr_zero(bits);
  }
  /// The largest member that is at most n; -1: none.
  std::int64_t at_most(std::int64_t n) const {
    auto word = static_cast<std::int64_t>(n / 64);
    std::uint64_t bits = words_[static_cast<std::size_t>(word)] & (~std::uint64_t{0} >> (63 - n % 64));
    while (bits == 0 && --word >= 0) bits = words_[static_cast<std::size_t>(word)];
    return bits == 0 ? -1 : word * 64 + 63 - std::countl_zero(bits);
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace

PackedRows::PackedRows(TokenRange tokens, std::int64_t context, std::int32_t separator, Packing packing,
                       std::uint64_t seed)
    : tokens_(std::move(tokens)), context_(context), separator_(separator), seed_(seed) {
  require(context >= 1 && context < std::numeric_limits<std::int32_t>::max(), "packing", "context is {}", context);
  require(packing != Packing::cut, "packing", "--packing cut has no rows: data/sampler.h");
  const std::vector<Piece> pieces = find_pieces(separator);
  if (pieces.empty())
    fail(ExitCode::data, "packing",
         "there is no document of at least 2 tokens among {}; expected at least one; use "
         "--packing cut or other data",
         tokens_.count());
  if (packing == Packing::best_fit) {
    fit(pieces);
  } else {
    fit_and_crop(pieces);
  }
  std::int64_t placed = 0;
  for (const Piece& piece : pieces_) placed += piece.length;
  report_.rows = rows();
  report_.cropped = report_.tokens - placed;
  report_.padding = rows() * (context_ + 1) - placed;
}

/// The documents, the longest first; documents of equal length keep their order. Documents longer than a row are cut
/// into pieces.
std::vector<PackedRows::Piece> PackedRows::find_pieces(std::int32_t separator) {
  const std::int64_t row = context_ + 1;
  std::vector<Piece> pieces;
  for_each_document_of(tokens_, separator, [&](std::int64_t begin, std::int64_t length) {
    ++report_.documents;
    report_.tokens += length;
    report_.cut += length > row ? 1 : 0;
    for (std::int64_t done = 0; done < length; done += row) {
      const std::int64_t rest = std::min(row, length - done);
      if (rest >= 2)
        pieces.push_back({begin + done, static_cast<std::int32_t>(rest), done == 0, done + rest == length});
    }
  });
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  return pieces;
}

void PackedRows::fit(const std::vector<Piece>& pieces) {
  const std::int64_t row = context_ + 1;
  std::vector<std::vector<std::int64_t>> by_room(static_cast<std::size_t>(row) + 1);  // rows with that much room
  NumberSet rooms(row + 1);
  std::vector<std::int64_t> row_of;  // of each piece
  std::int64_t rows = 0;
  for (const Piece& piece : pieces) {
    const std::int64_t room = rooms.at_least(piece.length);
    std::int64_t chosen = rows;
    if (room < 0) {
      ++rows;
    } else {
      auto& candidates = by_room[static_cast<std::size_t>(room)];
      chosen = candidates.back();
      candidates.pop_back();
      if (candidates.empty()) rooms.erase(room);
    }
    row_of.push_back(chosen);
    const std::int64_t left = (room < 0 ? row : room) - piece.length;
    by_room[static_cast<std::size_t>(left)].push_back(chosen);
    rooms.insert(left);
  }
  row_ends_.assign(static_cast<std::size_t>(rows), 0);
  for (const std::int64_t chosen : row_of) ++row_ends_[static_cast<std::size_t>(chosen)];
  std::partial_sum(row_ends_.begin(), row_ends_.end(), row_ends_.begin());
  std::vector<std::int64_t> next(row_ends_.size());
  for (std::size_t i = 1; i < next.size(); ++i) next[i] = row_ends_[i - 1];
  pieces_.resize(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces_[static_cast<std::size_t>(next[static_cast<std::size_t>(row_of[i])]++)] = pieces[i];
}

void PackedRows::fit_and_crop(const std::vector<Piece>& pieces) {
  const std::int64_t row = context_ + 1;
  std::vector<std::int64_t> first(static_cast<std::size_t>(row) + 1), end(first.size());  // pieces of each length
  NumberSet lengths(row + 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto length = static_cast<std::size_t>(pieces[i].length);
    if (end[length] == 0) first[length] = static_cast<std::int64_t>(i);
    end[length] = static_cast<std::int64_t>(i) + 1;
    lengths.insert(pieces[i].length);
  }
  const auto take = [&](std::int64_t length) {
    const auto l = static_cast<std::size_t>(length);
    const Piece piece = pieces[static_cast<std::size_t>(first[l]++)];
    if (first[l] == end[l]) lengths.erase(length);
    return piece;
  };
  std::int64_t room = row;
  while (true) {
    const std::int64_t fits = lengths.at_most(room);
    const std::int64_t longer = fits < 0 ? lengths.at_least(room + 1) : -1;
    if (fits < 0 && longer < 0) break;  // all are placed
    Piece piece = take(fits < 0 ? longer : fits);
    if (fits < 0) {
      report_.cut += piece.begins && piece.ends ? 1 : 0;
      piece.length = static_cast<std::int32_t>(room);
      piece.ends = false;
    }
    pieces_.push_back(piece);
    room -= piece.length;
    if (room > 0) continue;
    row_ends_.push_back(static_cast<std::int64_t>(pieces_.size()));
    room = row;
  }
  if (room < row) row_ends_.push_back(static_cast<std::int64_t>(pieces_.size()));
}

std::int64_t PackedRows::known_places(std::int64_t row) const {
  const auto r = static_cast<std::size_t>(row);
  std::int64_t used = 0;
  for (std::int64_t i = r == 0 ? 0 : row_ends_[r - 1]; i < row_ends_[r]; ++i)
    used += pieces_[static_cast<std::size_t>(i)].length;
  // Behind the last document comes its separator, and then nothing.
  const bool ends = pieces_[static_cast<std::size_t>(row_ends_[r] - 1)].ends;
  return used + (ends && used < context_ + 1 ? 1 : 0);
}

std::optional<std::int64_t> PackedRows::targets_of(std::int64_t first, std::int64_t count) const {
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < count; ++i) targets += known_places(row_of_sample(first + i, rows(), seed_, true)) - 1;
  return targets;
}

void PackedRows::read_row(std::int64_t row, std::int32_t* inputs, std::int32_t* targets) const {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(context_) + 1, separator_);
  const auto r = static_cast<std::size_t>(row);
  std::size_t used = 0;
  for (std::int64_t i = r == 0 ? 0 : row_ends_[r - 1]; i < row_ends_[r]; ++i) {
    const Piece& piece = pieces_[static_cast<std::size_t>(i)];
    tokens_.read(piece.begin, std::span(ids).subspan(used, static_cast<std::size_t>(piece.length)));
    used += static_cast<std::size_t>(piece.length);
  }
  const auto known = static_cast<std::size_t>(known_places(row));
  std::copy_n(ids.begin(), context_, inputs);
  for (std::size_t t = 0; t < static_cast<std::size_t>(context_); ++t) targets[t] = t + 1 < known ? ids[t + 1] : -1;
}

Batch PackedRows::make_batch(std::int64_t first, std::int64_t count) const {
  require(first >= 0 && count >= 1, "packing", "{} samples from {} on; expected at least 1", count, first);
  const Tensor inputs = Tensor::empty({count, context_}, DType::i32);   // [B, T]
  const Tensor targets = Tensor::empty({count, context_}, DType::i32);  // [B, T]
  std::vector<std::int64_t> sample_ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = row_of_sample(first + i, rows(), seed_, true);
    read_row(row, inputs.data<std::int32_t>() + i * context_, targets.data<std::int32_t>() + i * context_);
    sample_ids.push_back(first + i);
  }
  return token_batch(inputs, targets, std::move(sample_ids));
}

PackingReport report_cut(const TokenRange& tokens, std::int64_t context, std::int32_t separator) {
  PackingReport report;
  const std::int64_t row = context + 1;
  for_each_document_of(tokens, separator, [&](std::int64_t begin, std::int64_t length) {
    ++report.documents;
    report.tokens += length;
    report.cut += begin / row != (begin + length - 1) / row ? 1 : 0;
  });
  report.rows = report.tokens / row;
  report.cropped = report.tokens % row;
  return report;
}

}  // namespace trireme
