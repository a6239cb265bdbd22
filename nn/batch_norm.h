// BatchNorm (Ioffe and Szegedy 2015): each channel normalised over all samples and positions of the batch. BatchNorm1d
// takes [N, C] or [N, C, L], BatchNorm2d [N, C, H, W].
//
//   nn::BatchNorm2d norm(b / "norm", 64);
//   const Tensor y = norm(x);  // [N, 64, H, W] -> as x
//
// The batch is the global one: in training, mean and variance are over the samples of all dp ranks, as in PyTorch's
// SyncBatchNorm, and over the positions of all ranks where cp or sequence parallelism splits positions. So values,
// gradients and running statistics are those of one rank with all of these samples, up to rounding, also if ranks have
// different numbers of them. Forward sums 2 C + 1 numbers over the ranks, in two steps, and backward 2 C.
//
// With several micro-batches, each is a batch of its own, as with gradient accumulation in PyTorch: its statistics are
// over the micro-batches of all ranks that run at the same time (micro-batch x dp samples). So another number of
// micro-batches gives other numbers. GroupNorm does not depend on this.
//
// In training (RunState::training), a forward that is recorded also updates the running statistics, which are buffers
// and are saved with a run: running = (1 - momentum) running + momentum batch, with the unbiased variance. A forward
// without recording, such as the first one of a block that is recomputed, does not. In evaluation, forward uses them in
// place of the batch's.
//
// What is sharded: nothing. Gain and shift are applied to each position, so their placement is
// per_position_placement().
// Read next: autograd/row_norm.h, nn/group_norm.h.
#pragma once

#include "nn/module.h"

namespace trireme::nn {

/// Numbers of a BatchNorm, with PyTorch's defaults.
struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of the batch in the running statistics
};

/// For x [N, C, ..] of any dims.
class BatchNorm : public Module {
 public:
  BatchNorm(const Build& b, std::int64_t channels, const BatchNormOptions& options = {});
  Tensor forward(const Tensor& x) override;

 protected:
  virtual void check(const Tensor& x) const = 0;  ///< throws if x has other dims than the layer takes
  std::int64_t channels() const { return weight_->global_shape[0]; }

 private:
  std::vector<ProcessGroup*> groups_;  // over which the batch is split
  BatchNormOptions options_;
  ParameterPtr weight_, bias_;                 // [C]
  BufferPtr running_mean_, running_variance_;  // [C], f32
};

/// Of x [N, C] or [N, C, L].
class BatchNorm1d final : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  void check(const Tensor& x) const override;  // [N, C] or [N, C, L]
};

/// Of x [N, C, H, W].
class BatchNorm2d final : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  void check(const Tensor& x) const override;  // [N, C, H, W]
};

}  // namespace trireme::nn
