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
// Which gradients wait: those that are products of their own, with as many FLOPs as the product of the input's gradient
// (linear, grouped_linear, matmul with the weight on the right), and embedding's sum of rows. They keep what they need, the
// operation's input and the gradient of its output; everything else that forward saved is freed in B. Gains and biases
// are sums over rows that come out of the same pass over memory as the input's gradient, or cost next to nothing:
// waiting would read everything twice. They are computed in B. Only leaves that are Leaf::deferrable() wait,
// parameters: whoever made another leaf, a stage's input, reads its gradient right after backward.
//
// The bits do not change: whatever is added to a leaf that has work waiting, a cheap contribution too, queues behind
// it, and so do its on_grad_ready hooks, which therefore still see a gradient that is complete.
// Read next: parallel/pipeline/executor.cpp, which splits backwards where a schedule says so.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/node.h"

namespace trireme {

/// The weight gradients that one backward, or several, left for later.
class DeferredGradients {
 public:
  DeferredGradients() = default;
  DeferredGradients(DeferredGradients&& other) noexcept = default;
  DeferredGradients& operator=(DeferredGradients&& other) noexcept;
  ~DeferredGradients();  ///< what has not run is dropped

  /// Computes them in the order in which they were left, and forgets them. To add to a leaf in the order of the
  /// backwards, run what they left in that order.
  void run();
  bool empty() const { return jobs_.empty(); }
  void add(Leaf& leaf, std::function<void()> work);

 private:
  struct Job {
    std::shared_ptr<Leaf> leaf;
    std::function<void()> work;
  };
  void drop();
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

/// Runs `work`, which computes a gradient of `leaf` and adds it there: now, or later where the caller of backward wants
/// that. What `work` needs it must hold by value.
template <class Work>
void add_weight_gradient(Leaf& leaf, Work work) {
  DeferredGradients* later = DeferWeightGradients::current();
  if (later != nullptr && leaf.deferrable()) return later->add(leaf, std::move(work));
  work();
}

/// Runs `work` on `leaf` now, or after what waits for it already.
template <class Work>
void in_order(Leaf& leaf, Work work) {
  DeferredGradients* later = DeferWeightGradients::current();
  if (later != nullptr && leaf.deferred() > 0) return later->add(leaf, std::move(work));
  work();
}

}  // namespace trireme
