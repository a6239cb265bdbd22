// Softmax cross-entropy, over a vocabulary that may be split over ranks.
// Read next: nn/vocab_embedding.h (who makes the logits), core/cpu/cross_entropy.cpp.
#pragma once

#include "core/kernels.h"
#include "parallel/comm/process_group.h"

namespace trireme::nn {

/// What cross_entropy() needs besides logits and targets.
struct CrossEntropyOptions {
  VocabSlice slice{};             ///< the real tokens among these columns; default: all columns, and no split
  ProcessGroup* group = nullptr;  ///< the ranks the vocabulary is split over; null: none
  double smoothing = 0;           ///< label smoothing (Szegedy et al. 2016), spread over the global vocabulary
  double scale = 1;
  int class_dim = -1;      ///< the dim of the logits that is the classes; 1 for PyTorch's [N, C, d1, ..]
  Tensor class_weights{};  ///< [C], floating, without a gradient; undefined: 1 for each class. Needs whole logits
};

/// scale * sum over rows of -log softmax(logits)[target], an f32 (f64 for f64 logits) scalar []; the same on every rank
/// of the group. logits [.., V(/tp)], one row per target; targets i32, negative ones are ignored. With class_dim, the
/// classes are another dim, and the targets have the shape of the other dims. Throws ExitCode::data for a target
/// outside the vocabulary, and ExitCode::usage for padded or split logits without a slice and a group: those of a
/// VocabEmbedding or a Linear with Split::out, as long as only views and cast_to() come between.
///
/// `scale` is 1 / (valid targets of the *global* batch): the only division of a training step, and known before
/// backward, so that micro-batches, data-parallel ranks and pipeline stages only sum. The gradient overwrites the
/// logits' memory if no other tensor shares it: with the whole vocabulary on one rank already in forward, by one pass
/// over them. A temporary or moved tensor is not shared. The loss should then not be multiplied by anything but
/// `scale`: the product would round a 16-bit gradient once more.
///
/// class_weights w multiply each target's loss by w[target]; the smoothed part of a row is smoothing / C times the sum
/// over all classes c of -w[c] log softmax(logits)[c]. These are PyTorch's formulas. Its mean divides by the sum of
/// w[target]: give scale = 1 / that sum over the global batch, which sum_of_target_weights() computes for one batch.
///
///   nn::cross_entropy(scores, labels, {.scale = 1.0 / pixels, .class_dim = 1})  // [N, C, H, W], labels [N, H, W]
Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options);

/// The sum of class_weights[target] over the targets that are not ignored; without weights, their number. Read on the
/// host.
double sum_of_target_weights(const Tensor& targets, const Tensor& class_weights = {});

}  // namespace trireme::nn
