// DataParallel: sums a model's gradients after backward, and updates the weights. Replicated does all of it on every
// rank (parallel/data_parallel/replicated.h); Zero gives each rank a shard of the work (parallel/zero/zero.h). The
// training loop is the same with both:
//
//   optimizer->attach(*dp);
//   dp->zero_grad(micro_batches);
//   ... backwards, with last_microbatch() before each ...
//   dp->finish();
//   optimizer->step(lr, clip_factor(dp->gradient_norm(), 1.0));    // calls dp->update()
//
// It does not know the optimizer: update() receives a function that updates shards, and decides when to call it and
// what to send in between. All member functions except last_microbatch() are collective over the mesh.
// Read next: parallel/data_parallel/grad_sync.h, parallel/zero/zero.h, optim/optimizer.h (the caller).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/verify.h"

namespace trireme {

class DataParallel {
 public:
  DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
  virtual ~DataParallel() = default;
  /// Expires with this object: for those who keep a pointer to it.
  std::weak_ptr<const bool> lifetime() const { return lifetime_; }

  /// The shards that this rank updates, in the order of the parameters. Construct the optimizer with them.
  virtual const ShardList& shards() const = 0;

  /// Starts a step of so many micro-batches (0: see ZeroGradients::zero_grad()): all gradients become 0.
  virtual void zero_grad(int microbatches = 0) = 0;
  /// Call before each backward; `last`: it is its stage's last of the step.
  virtual void last_microbatch(bool last = true) = 0;
  /// Ends a step's backwards: gradients are the sums over the mesh.
  virtual GradSyncReport finish() = 0;

  /// sum = the sum of squares of the whole model's gradient (parallel/data_parallel/gradient_norm.h); f64 [1], on the
  /// gradients' device. After finish().
  virtual void sum_squares(Tensor& sum) const = 0;
  /// Throws ExitCode::usage, naming `where`, unless finish() has been called since the last backward.
  virtual void require_summed(std::string_view where) const = 0;
  /// The norm of that gradient. Waits for the device. Throws as require_summed().
  double gradient_norm() const;
  /// This rank's part of a summed gradient, by place in shards(), of a parameter that is not frozen. After finish().
  virtual Tensor gradient(std::size_t place) const = 0;
  /// Updates the shards at these places in shards(), in one pass.
  using UpdateShards = std::function<void(std::span<const std::size_t> places)>;
  /// Updates all weights: calls `update_shards` one or more times, with each place in exactly one call (those of frozen
  /// parameters in one call or none). After finish(), or at any time between steps if `update_shards` reads no
  /// gradients.
  virtual void update(const UpdateShards& update_shards) = 0;
  /// Completes weights that are still on their way to this rank. Call before weights or optimizer state are read.
  virtual void finish_gathers() {}

  /// Which of `tensors`, weights and optimizer state, other ranks hold too.
  virtual std::vector<ReplicatedTensor> copies(const std::vector<StateTensor>& tensors) const = 0;
  /// If the options ask for it, from now on hashes data that only this rank holds after each update, and checks before
  /// the next one that it has not changed. `state`: the optimizer's.
  virtual void hash_shards(const std::vector<StateTensor>& /*state*/) {}
  /// Throws ExitCode::retryable if hashed data has changed since the last update.
  virtual void check_hashes() {}
  /// Call after loading weights or state: they are not checked again until the next update.
  virtual void forget_hashes() {}

 private:
  std::shared_ptr<const bool> lifetime_ = std::make_shared<const bool>(true);
};

}  // namespace trireme
