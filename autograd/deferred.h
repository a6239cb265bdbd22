// A backward in two parts (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2): B computes the gradients of
// inputs, which the pipeline stage before waits for; W those of weights, for which nobody waits.
//
//   DeferredGradients later;
//   {
//     const DeferWeightGradients scope(later);
//     backward(loss);  // B
//   }
//   later.run();       // W
//
// W adds every gradient of a parameter to its sum and runs its on_grad_ready hooks, in the order of a whole backward.
// So the bits do not change, and GradSync and ZeRO, which send gradients when they are ready, get those of one
// micro-batch together.
//
// What is computed in W: products of their own, with as many FLOPs as the product of the input's gradient (linear,
// grouped_linear, matmul with the weight on the right), and embedding's sum of rows. They keep what they need, the
// operation's input and the gradient of its output; everything else that forward saved is freed in B. Gains and biases
// are sums over rows that come out of the same pass over memory as the input's gradient, or cost next to nothing:
// computing them in W would read everything twice. They are computed in B, and these small tensors wait for W.
//
// Only parameters wait (Leaf::is_parameter()). The gradient of any other leaf, such as a stage's input, is read right
// after backward.
// Read next: parallel/pipeline/executor.cpp, which splits backwards where a schedule says so.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace trireme {

/// The weight gradients that one backward, or several, left for later. What has not run is dropped with it.
class DeferredGradients {
 public:
  /// Computes them in the order in which they were left, and forgets them. To add to a leaf in the order of the
  /// backwards, run what they left in that order.
  void run();
  bool empty() const { return jobs_.empty(); }
  void add(Leaf& leaf, std::function<void()> work) { jobs_.push_back({leaf.shared_from_this(), std::move(work)}); }

 private:
  struct Job {
    std::shared_ptr<Leaf> leaf;  // alive while work refers to it
    std::function<void()> work;
  };
  std::vector<Job> jobs_;
};

/// While it lives, backward on the calling thread leaves weight gradients in `later`, which must outlive it.
class DeferWeightGradients {
 public:
  explicit DeferWeightGradients(DeferredGradients& later);
  ~DeferWeightGradients();
  DeferWeightGradients(const DeferWeightGradients&) = delete;
  DeferWeightGradients& operator=(const DeferWeightGradients&) = delete;

  /// Where the calling thread leaves them; null when it does not.
  static DeferredGradients* current();

 private:
  DeferredGradients* previous_;
};

/// Runs `work`, which adds a gradient to `leaf` or runs its hooks: now, or later where the caller of backward wants
/// that. What `work` needs it must hold by value.
template <class Work>
void add_weight_gradient(Leaf& leaf, Work work) {
  DeferredGradients* later = DeferWeightGradients::current();
  if (later != nullptr && leaf.is_parameter()) return later->add(leaf, std::move(work));
  work();
}

}  // namespace trireme
