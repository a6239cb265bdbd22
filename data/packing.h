// Packing: rows of whole documents, instead of windows that begin and end anywhere.
//
// A row has context + 1 tokens. Best fit (Ding et al. 2024, "Fewer Truncations Improve Language Modeling", section 3):
// documents longer than a row are cut into pieces of a row; then, longest first, each piece goes into the row with the
// least room that is enough for it. No document that fits into a row is cut. What stays free is padding, whose targets
// are -1: at most a few per mille of the tokens when there are many short documents. Best fit with cropping has no
// padding: a row takes the longest piece that fits again and again, and when none does, the beginning of the shortest
// piece that is left; the rest of that document is never trained on.
//
// Documents are those that a separator token ends, such as <|endoftext|>. In a row the separator stands at the
// beginning of its document, where other programs have a BOS token: each row begins with a document, or with a piece of
// one that is longer than a row.
//
// An epoch is all rows, each once, in a random order that is a function of (seed, epoch).
// Read next: data/sampler.h (windows: --packing cut), data/shuffle.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/source.h"
#include "data/tokens.h"

namespace trireme {

/// --packing.
enum class Packing : std::uint8_t { cut, best_fit, best_fit_crop };

/// What packing does to the tokens of a corpus.
struct PackingReport {
  std::int64_t documents = 0, tokens = 0, rows = 0;
  std::int64_t cut = 0;      ///< documents that are not in one row as a whole
  std::int64_t cropped = 0;  ///< tokens that are in no row
  std::int64_t padding = 0;  ///< places of rows without a token
};

/// Rows of whole documents; see the top of this file. Memory: 16 bytes per piece and 8 per row; 40 bytes
/// per piece while the rows are made.
class PackedRows : public DataSource {
 public:
  /// `separator`: ends a document. Throws ExitCode::data if there is no document of at least 2 tokens.
  PackedRows(TokenRange tokens, std::int64_t context, std::int32_t separator, Packing packing, std::uint64_t seed);

  std::int64_t rows() const { return static_cast<std::int64_t>(row_ends_.size()); }
  const PackingReport& report() const { return report_; }
  /// Sample s is row row_of_sample(s). `inputs` [B, T], `targets` [B, T]: -1 where the next place is padding.
  Batch make_batch(std::int64_t first, std::int64_t count) const override;
  std::optional<std::int64_t> targets_of(std::int64_t first, std::int64_t count) const override;

 private:
  struct Piece {
    std::int64_t begin;  // in tokens_
    std::int32_t length;
    bool begins, ends;  // its document
  };
  std::vector<Piece> find_pieces(std::int32_t separator);
  void fit(const std::vector<Piece>& pieces);
  void fit_and_crop(const std::vector<Piece>& pieces);
  std::int64_t known_places(std::int64_t row) const;  // those with a token, the last separator among them
  void read_row(std::int64_t row, std::int32_t* inputs, std::int32_t* targets) const;

  TokenRange tokens_;
  std::int64_t context_;
  std::int32_t separator_;
  std::uint64_t seed_;
  std::vector<Piece> pieces_;           // row by row
  std::vector<std::int64_t> row_ends_;  // of the rows, in pieces_
  PackingReport report_;
};

/// What --packing cut does, for comparison: rows of context + 1 tokens one after the other, whatever is in them.
PackingReport report_cut(const TokenRange& tokens, std::int64_t context, std::int32_t separator);

}  // namespace trireme
