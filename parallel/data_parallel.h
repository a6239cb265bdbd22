// DataParallel: sums a model's gradients after backward, and updates the weights. Replicated does all of it on every
// rank (parallel/replicated.h); Zero gives each rank a shard of the work (parallel/zero/zero.h). The training loop is
// the same with both:
//
//   dp->zero(micro_batches);
//   ... backwards, with last_microbatch() before each ...
//   dp->finish();
//   dp->update(*optimizer, lr, optim::clip_factor(dp->gradient_norm(), 1.0));
//
// All member functions except last_microbatch() are collective over the mesh.
// Read next: parallel/grad_sync.h, parallel/zero/zero.h.
#pragma once

#include "optim/optimizer.h"
#include "parallel/grad_sync.h"
#include "parallel/verify.h"

namespace trireme {

class DataParallel {
 public:
  virtual ~DataParallel() = default;

  /// The shards that this rank updates, in the order of the parameters. Construct the optimizer with them.
  virtual const optim::ShardList& shards() const = 0;
  /// Makes sure that readers of the optimizer's state and weights find them complete.
  virtual void attach(optim::Optimizer& optimizer) = 0;

  /// Starts a step of so many micro-batches: all gradients become 0.
  virtual void zero(int microbatches) = 0;
  /// Call before each backward; `last`: it is its stage's last of the step.
  virtual void last_microbatch(bool last) = 0;
  /// Ends a step's backwards: gradients are the sums over the mesh.
  virtual GradSyncReport finish() = 0;

  /// optim::gradient_norm() of the whole model. After finish().
  virtual double gradient_norm() const = 0;
  /// This rank's part of a summed gradient, by place in shards(). After finish().
  virtual Tensor gradient(std::size_t place) const = 0;
  virtual void update(optim::Optimizer& optimizer, double lr, double gradient_scale) = 0;

  /// Which of the optimizer's `tensors`, weights and state, other ranks hold too.
  virtual std::vector<Copied> copies(const std::vector<optim::StateTensor>& tensors) const = 0;
  /// Throws ExitCode::retryable if data that only this rank holds has changed since the last update.
  virtual void check_seals() {}
  /// Call after loading weights or state: they are not checked again until the next update.
  virtual void open_seals() {}
};

}  // namespace trireme
