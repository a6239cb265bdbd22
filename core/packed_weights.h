// Keeps packed copies of weights while the weights do not change: over the micro-batches of a step.
//
//   {
//     const PackedWeights kept;      // of the calling thread
//     for (...) forward and backward of a micro-batch
//   }                                // from here on the optimizer may write weights
//
// A product copies its operands into panels first (core/cpu/pack.h). For W [N, K] that takes about 16 / M of the time
// of a product with M rows. A weight's panels are the same in every micro-batch. Keeping them takes as much memory as
// the weight, once for x W^T and once for dy W. They do not change the bits of a product. Only operands marked with
// GemmOptions::b_is_weight are kept: those of linear layers, not the matrices of experts. Only our own CPU product
// (`--gemm trireme`) uses them; library products and CUDA do not.
// Read next: core/cpu/gemm.cpp, which looks for the copies.
#pragma once

#include <list>

#include "core/tensor.h"

namespace trireme {

class PackedWeights {
 public:
  /// `on` = false: has no effect.
  explicit PackedWeights(bool on = true);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  /// The calling thread's; null if there is none.
  static PackedWeights* current();

  struct Copy {
    Tensor weight;  ///< a view, so that its memory is not reused for another
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
