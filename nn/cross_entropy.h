// Softmax cross-entropy, over a vocabulary that may be split over ranks.
// Read next: nn/vocab_embedding.h (who makes the logits), core/cpu/cross_entropy.cpp.
#pragma once

#include "core/kernels.h"
#include "parallel/comm/process_group.h"

namespace trireme::nn {

struct CrossEntropyOptions {
  VocabSlice slice{};             ///< the real tokens among these columns; default: all columns, and no split
  ProcessGroup* group = nullptr;  ///< the ranks the vocabulary is split over; null: none
  double smoothing = 0;           ///< label smoothing (Szegedy et al. 2016), spread over the global vocabulary
  double scale = 1;
};

/// scale * sum over rows of -log softmax(logits)[target], an f32 (f64 for f64 logits) scalar []; the same on every rank
/// of the group. logits [.., V(/tp)], one row per target; targets i32, negative ones are ignored.
///
/// `scale` is 1 / (valid targets of the *global* batch): the only division of a training step, and known before
/// backward, so that micro-batches, data-parallel ranks and pipeline stages only sum. The gradient overwrites the
/// logits' memory if no other tensor shares it: with the whole vocabulary on one rank already in forward, by one pass
/// over them. A temporary or moved tensor is not shared. The loss should then not be multiplied by anything but
/// `scale`: the product would round a 16-bit gradient once more.
Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options);

}  // namespace trireme::nn
