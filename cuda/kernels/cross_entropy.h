// Softmax cross-entropy with label smoothing, over a vocabulary that may be sharded over ranks. With e = smoothing and
// V the size of the whole vocabulary:
//   loss(row) = log(sum_j exp(x_j)) - (1 - e) x_target - e / V sum_j x_j
//   gradient(row, j) = scale * (softmax(x)_j - (1 - e) [j = target] - e / V)
// (Szegedy et al., Rethinking the Inception Architecture, 2016, section 7.) In two passes. The first gives each row's
// maximum, sum of exp(x - maximum), the target's logit and the sum of logits over the local slice of the vocabulary.
// Ranks join these (largest maximum, sums rescaled to it, the others added), which moves 16 bytes per row instead of
// the logits. The second pass turns logits into gradients. Where no ranks join, one kernel does both passes over a row
// that stays in shared memory, with the same bits. Contracts: cross_entropy_* of core/kernels.h, for float, bf16 and
// f16. Bytes per logit of b bytes: b read in the first pass; b read and b written in the second; b read and b written
// by the one kernel, which reads the part of a row beyond 112 KB (80 KB on an A100) a second time, from L2. About 5
// FLOPs and one exponential a pass. The losses: 20 bytes read and 8 written per row.
// Read next: cuda/kernels/cross_entropy.cu.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// T: float, bf16 or f16.
template <class T>
struct CrossEntropy {
  int rows;
  int columns;                   ///< of the local slice, with padding: the pitch of logits
  int valid;                     ///< columns from 0 on that are real tokens; the rest gets probability 0 and gradient 0
  std::int64_t first;            ///< global id of column 0
  std::int64_t vocabulary;       ///< V: real tokens over all slices
  double smoothing;              ///< e: 0 for none
  const T* logits;               ///< [rows, columns]
  const std::int32_t* targets;   ///< [rows] global ids; negative: the row is ignored, its loss and gradient are 0
  float* maximum;                ///< [rows] of the slice after the first pass; over all slices after the join
  float* sum_exp;                ///< [rows] sum of exp(x - maximum), likewise
  float* target_logit;           ///< [rows] 0 on ranks whose slice does not hold the target, likewise
  float* logit_sum;              ///< [rows] likewise
  const float* dloss = nullptr;  ///< [1] multiplies the scale of the second pass; null: 1
};

/// The first pass. A slice without real columns gives -infinity and zeros.
template <class T>
void cross_entropy_statistics(const CrossEntropy<T>& problem, Stream stream = nullptr);

/// losses [rows], from the statistics over all slices; reads only these and the targets.
template <class T>
void cross_entropy_losses(const CrossEntropy<T>& problem, double* losses, Stream stream = nullptr);

/// loss[0] = scale * the sum of losses [rows], in an order that depends on `rows` only.
void cross_entropy_total(const double* losses, int rows, double scale, float* loss, Stream stream = nullptr);

/// The second pass. `scale`: the loss scale over the number of rows, on all ranks, that are not ignored. gradients
/// [rows, columns] may be the logits.
template <class T>
void cross_entropy_gradient(const CrossEntropy<T>& problem, double scale, T* gradients, Stream stream = nullptr);

/// Both passes at once, for a slice that is the whole vocabulary: the same statistics and gradients.
template <class T>
void cross_entropy_one_pass(const CrossEntropy<T>& problem, double scale, T* gradients, Stream stream = nullptr);

}  // namespace trireme::cuda
