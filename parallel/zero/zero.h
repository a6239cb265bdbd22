// Zero: redundant copies of optimizer state, gradients and parameters are given up, step by step (Rajbhandari et al.
// 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models").
//
// The ranks along which a parameter's gradient is summed all hold the same parameter: data for a dense one, edp for an
// expert. With ZeRO each of them owns one shard of it, and updates only that. With bf16 parameters (2 bytes), f32
// gradients (4) and AdamW's f32 master, m and v (12), over N ranks, bytes per parameter are
//
//   stage 0  18        GradSync
//   stage 1  6 + 12/N  optimizer state sharded
//   stage 2  2 + 16/N  gradients too: reduce-scattered bucket by bucket
//   stage 3  18/N      and parameters, which are gathered while they are used
//
// A model knows nothing of this. Zero takes the place of GradSync and of the loop over the optimizer:
//
//   Zero zero(model.parameters(), model.units(), mesh, {.stage = 2});
//   auto optimizer = optim::make_adamw(zero.shards(), {});
//   zero.attach(*optimizer);
//   zero.zero(); ... backward, with last_microbatch() before the last ...; zero.finish();
//   zero.update(*optimizer, lr, optim::clip_factor(zero.gradient_norm(), 1.0));
//
// On one rank nothing is cut and nothing sent. Read next: parallel/zero/bucket.h.
#pragma once

#include "parallel/verify.h"
#include "parallel/zero/weights.h"

namespace trireme {

class Zero {
 public:
  /// Collective over the mesh. `parameters` in the order of creation; they, `units` and `mesh` must outlive this object.
  Zero(const nn::ParameterList& parameters, nn::Units& units, const DeviceMesh& mesh, const ZeroOptions& options);

  /// What this rank updates, in the order of the parameters: make the optimizer with it.
  const optim::ShardList& shards() const { return shards_; }
  /// Lets readers of the optimizer's state and weights find them complete.
  void attach(optim::Optimizer& optimizer);

  /// `microbatches` of the step, or 0: see ZeroGradients::zero().
  void zero(int microbatches = 0) { gradients_.zero(microbatches); }
  void last_microbatch(bool last = true) { gradients_.last_microbatch(last); }
  GradSyncReport finish() { return gradients_.finish(); }

  /// optim::gradient_norm() of the pieces. After finish(); collective.
  double gradient_norm() const;
  /// This rank's shard of a summed gradient, by place in shards(). After finish().
  Tensor gradient(std::size_t place) const;

  void update(optim::Optimizer& optimizer, double lr, double gradient_scale) {
    weights_.update(optimizer, gradients_, lr, gradient_scale);
  }
  /// Waits for parameters that are on their way; with stage 3, empties the gathered ones.
  void settle() { weights_.settle(); }

  /// With ZeroOptions::seal: throws ExitCode::retryable when what this rank alone holds has changed since the last
  /// update. Collective over the mesh, as settle() is.
  void check_seals() { weights_.check_seals(); }
  /// To be called when weights or state were loaded: there is nothing to compare them with until the next update.
  void open_seals() { weights_.open_seals(); }
  /// Which of the optimizer's `tensors`, weights and state, other ranks hold too.
  std::vector<Copied> copies(const std::vector<optim::StateTensor>& tensors) const;

  const std::vector<ZeroBucket>& buckets() const { return buckets_; }

 private:
  const DeviceMesh& mesh_;
  ZeroOptions options_;
  ZeroGroups groups_;
  optim::ShardList shards_;
  std::vector<ZeroBucket> buckets_;
  nn::ParameterList tied_;
  ZeroGradients gradients_;
  ZeroWeights weights_;
};

}  // namespace trireme
