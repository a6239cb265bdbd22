// Zero: removes redundant copies of optimizer state, gradients and parameters, stage by stage (Rajbhandari et al. 2020,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models").
//
// The ranks along which a parameter's gradient is summed all hold the same parameter: data for a dense one, edp for an
// expert. With ZeRO each of them owns one shard of it, and updates only this shard. With bf16 parameters (2 bytes), f32
// gradients (4) and AdamW's f32 master, m and v (12), over N ranks, bytes per parameter are
//
//   stage 0  18        nothing sharded: Replicated (parallel/data_parallel/replicated.h)
//   stage 1  6 + 12/N  optimizer state sharded
//   stage 2  2 + 16/N  gradients too: reduce-scattered bucket by bucket
//   stage 3  18/N      parameters too: gathered while they are used
//
// Models are independent of this. Zero and Replicated have the same interface, DataParallel
// (parallel/data_parallel/data_parallel.h):
//
//   Zero zero(model.parameters(), model.units(), mesh, {.stage = 2});
//   auto optimizer = optim::make_adamw(zero.shards(), {});
//   optimizer->attach(zero);
//   zero.zero_grad(); ... backward, with last_microbatch() before the last ...; zero.finish();
//   optimizer->step(lr, clip_factor(zero.gradient_norm(), 1.0));
//
// On one rank nothing is cut or sent. Read next: parallel/zero/bucket.h.
#pragma once

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/zero/weights.h"

namespace trireme {

/// Shards of optimizer state, gradients and weights over dp: see the top of this file.
/// @snippet training_test.cpp zero
class Zero : public DataParallel {
 public:
  /// Collective over the mesh. `parameters` in the order of creation, with equal values where ranks hold copies, as for
  /// GradSync; they, `units` and `mesh` must outlive this object.
  Zero(const ParameterList& parameters, Units& units, const DeviceMesh& mesh, const ZeroOptions& options);
  Zero(const ParameterList&, Units&, const DeviceMesh&&, const ZeroOptions&) = delete;  ///< as of GradSync

  const ShardList& shards() const override { return shards_; }

  /// `microbatches` of the step, or 0: see ZeroGradients::zero_grad().
  void zero_grad(int microbatches = 0) override { gradients_.zero_grad(microbatches); }
  void last_microbatch(bool last = true) override { gradients_.last_microbatch(last); }
  GradSyncReport finish() override { return gradients_.finish(); }

  void sum_squares(Tensor& sum) const override;
  void require_summed(std::string_view where) const override { gradients_.require_summed(where); }
  Tensor gradient(std::size_t place) const override;

  void update(const UpdateShards& update_shards) override { weights_.update(gradients_, update_shards); }
  /// Waits for parameters being gathered; with stage 3, frees the gathered ones.
  void finish_gathers() override { weights_.finish_gathers(); }

  void hash_shards(const std::vector<StateTensor>& state) override;
  void check_hashes() override { weights_.check_hashes(); }  ///< with ZeroOptions::hashed_data
  void forget_hashes() override { weights_.forget_hashes(); }
  std::vector<ReplicatedTensor> copies(const std::vector<StateTensor>& tensors) const override;

  const std::vector<ZeroBucket>& buckets() const { return buckets_; }

 private:
  const DeviceMesh& mesh_;
  ZeroOptions options_;
  ZeroGroups groups_;
  ShardList shards_;
  std::vector<ZeroBucket> buckets_;
  ParameterList tied_;
  ZeroGradients gradients_;
  ZeroWeights weights_;
};

/// Zero, or with stage 0 Replicated. As their constructors.
std::unique_ptr<DataParallel> make_data_parallel(const ParameterList& parameters, Units& units, const DeviceMesh& mesh,
                                                 const ZeroOptions& options);

}  // namespace trireme
