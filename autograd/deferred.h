// A backward in two parts (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2): B computes the gradients of
// inputs, which the previous pipeline stage waits for; W computes those of weights, which nobody waits for.
//
//   DeferredGradients later;
//   {
//     const DeferWeightGradients scope(later);
//     backward(loss);  // B
//   }
//   later.run();       // W
//
// W adds every gradient of a parameter to its sum and runs its on_grad_ready hooks, in the order of an undivided
// backward. So the bits do not change, and GradSync and ZeRO, which send gradients when they are ready, get those of
// one micro-batch together.
//
// W computes weight gradients that are products, with as many FLOPs as the product of the input's gradient (linear,
// grouped_linear, matmul with the weight on the right), and embedding's sum of rows. These keep the operation's input
// and the gradient of its output; everything else that forward saved is freed in B. The gradients of gains and biases
// are sums over rows. They come out of the same pass over memory as the input's gradient, or cost almost nothing;
// computing them in W would read everything twice. So B computes them, and W adds these small tensors to their sums.
// The exception: where the product of a layer's weight gives the bias's gradient too (autograd/linear_gradients.h), B
// returns a tensor that W fills, before W adds it.
//
// Only gradients of parameters are deferred (Leaf::is_parameter()). The gradient of any other leaf, such as a stage's
// input, is read right after backward.
// Read next: parallel/pipeline/executor.cpp, which splits backwards where a schedule says so.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace trireme {

/// The weight gradients that one or more backwards deferred. Destroying it drops those that have not run.
class DeferredGradients {
 public:
  /// Computes them in the order in which they were deferred, and forgets them. A leaf's gradient is summed in the order
  /// of the run() calls; so call run() in the order of the backwards.
  void run();
  bool empty() const { return deferred_.empty(); }
  void add(Leaf& leaf, std::function<void()> work) { deferred_.push_back({leaf.shared_from_this(), std::move(work)}); }

 private:
  struct Deferred {
    std::shared_ptr<Leaf> leaf;  // alive while work refers to it
    std::function<void()> work;
  };
  std::vector<Deferred> deferred_;
};

/// While it lives, backward on the calling thread defers weight gradients to `later`, which must outlive it.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(DeferredGradients& later);
  ~DeferWeightGradients();
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

  /// Where the calling thread defers them to; null if it does not defer.
  static DeferredGradients* current();

 private:
  DeferredGradients* previous_;
};

/// Whether the gradient of `leaf`, which may be null, is computed later.
inline bool is_deferred(const Leaf* leaf) {
  return leaf != nullptr && leaf->is_parameter() && DeferWeightGradients::current() != nullptr;
}

/// Runs `work`, which adds a gradient to `leaf` or runs its hooks: now, or later inside DeferWeightGradients. `work`
/// must hold everything it needs by value.
template <class Work>
void add_weight_gradient(Leaf& leaf, Work work) {
  if (is_deferred(&leaf)) return DeferWeightGradients::current()->add(leaf, std::move(work));
  work();
}

}  // namespace trireme
