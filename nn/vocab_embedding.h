// VocabEmbedding: a table [V, D] whose rows are split over tp. Lookup: each rank gives the rows it holds and zeros for
// the others, and a sum over tp completes them. Output head (with tied or own weights): each rank computes the logits
// of its rows.
//
// V is padded so that it divides; padded rows get neither a probability nor a gradient, if cross_entropy() is given
// slice(). The logits say that they need it: cross_entropy() refuses them without.
// Read next: nn/cross_entropy.h.
#pragma once

#include "nn/module.h"

namespace trireme::nn {

/// `vocab` rounded up so that it divides over tp and rows of logits stay aligned: to a multiple of lcm(64, tp).
std::int64_t padded_vocab(std::int64_t vocab, int tp);

/// Vectors of tokens, and the logits of a head that shares them; the vocabulary is split over tp.
/// @snippet modules_test.cpp embedding
class VocabEmbedding : public Module {
 public:
  /// `copy_of_earlier_stage`: this is the head's copy of a table whose first copy is on the first pipeline stage.
  VocabEmbedding(const Build& b, std::int64_t vocab, std::int64_t width, double init_std, bool copy_of_earlier_stage);

  /// Throws ExitCode::data for a token outside the vocabulary, unless the ids are in a GPU's memory already: such a
  /// token is then a row of zeros.
  Tensor forward(const Tensor& ids) override;    // [B, T] i32, all positions -> [B, T, D], the residual stream
  Tensor logits(const Tensor& h);                // [B, T, D], the residual stream -> [B, T, V/tp] of all positions
  Tensor logits_of_replicated(const Tensor& h);  // [.., D], R on tp -> [.., V/tp]
  const ParameterPtr& weight() const { return weight_; }
  VocabSlice slice() const { return slice_; }  ///< the real tokens among this rank's rows

 private:
  VocabSlice slice_;
  ParameterPtr weight_;  // [V/tp, D]
};

}  // namespace trireme::nn
