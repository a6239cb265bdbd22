// Softmax cross-entropy over a vocabulary that may be spread over ranks, with the gradient written over the logits.
//   loss(row) = log(sum_j exp(x_j)) - x_target;   gradient(row, j) = (softmax(x)_j - [j = target]) * scale
// In two passes. The first gives each row's maximum, sum of exp(x - maximum) and the target's logit over the local slice
// of the vocabulary. Ranks join these (largest maximum, sums rescaled to it, logits added), which moves 12 bytes a row
// instead of the logits. The second pass turns logits into gradients in place.
// Bytes per logit of b bytes: b read in the first pass; b read and b written in the second. A row of 50,304 bf16 values
// is 100 kB, so the second read of a row comes from the L2 cache when the passes follow each other. About 4 FLOPs and
// one exponential a pass.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// T: float, bf16 or f16.
template <class T>
struct CrossEntropy {
  int rows;
  int columns;                  ///< of the local slice, with padding: the pitch of logits
  int valid;                    ///< columns that are real tokens, from 0 on; the rest has probability 0, gradient 0
  std::int64_t first;           ///< global id of column 0
  T* logits;                    ///< [rows, columns]; the second pass replaces them with gradients
  const std::int64_t* targets;  ///< [rows] global ids; negative: the row does not count, its gradient is 0
  float* maximum;               ///< [rows] of the slice after the first pass; global before the second
  float* sum_exp;               ///< [rows] sum of exp(x - maximum), likewise
  float* target_logit;          ///< [rows] 0 on ranks whose slice does not hold the target; rows that do not count: 0
};

template <class T>
void cross_entropy_statistics(const CrossEntropy<T>& problem, Stream stream = nullptr);

/// `scale`: one over the number of rows that count over all ranks, times any loss scale; the loss itself is
/// log(sum_exp) + maximum - target_logit. `losses` [rows] receives it, 0 for rows that do not count; may be null.
template <class T>
void cross_entropy_gradient(const CrossEntropy<T>& problem, float scale, float* losses, Stream stream = nullptr);

}  // namespace trireme::cuda
