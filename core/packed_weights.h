// Weights as products packed them, kept for as long as they do not change: over the micro-batches of a step.
//
//   {
//     const PackedWeights kept;      // of the calling thread
//     for (...) forward and backward of a micro-batch
//   }                                // from here on the optimizer may write weights
//
// A product copies its operands into panels first (core/cpu/pack.h). Of W [N, K] that takes some 16 / M of the time of
// a product with M rows. Of a weight the copy is the same in every micro-batch. Keeping it takes as much memory as the
// weight, once for x W^T and once for dy W. A product gives the same bits with it. Only operands that say so are kept
// (GemmOptions::b_is_weight): those of linear layers, not the matrices of experts; and on the CPU by our own product
// alone.
#pragma once

#include <list>

#include "core/tensor.h"

namespace trireme {

class PackedWeights {
 public:
  /// `on` = false: as if it were not there.
  explicit PackedWeights(bool on = true);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  /// Of the calling thread; null when there is none.
  static PackedWeights* current();

  struct Copy {
    Tensor weight;  ///< a view; keeps its memory from being used for another
    Tensor panels;  ///< bytes
    bool filled = false;
  };
  /// The copy of `weight`, a matrix; `bytes` long. A new one is not filled.
  Copy& of(const Tensor& weight, std::int64_t bytes);
  std::int64_t bytes() const;  ///< of all copies

 private:
  std::list<Copy> copies_;
  PackedWeights* outer_;
};

}  // namespace trireme
