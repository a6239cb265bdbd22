// Replicated: every rank holds and updates all parameters of its stages; only their gradients are summed.
// Read next: parallel/data_parallel/grad_sync.h.
#pragma once

#include "parallel/data_parallel/data_parallel.h"

namespace trireme {

class Replicated : public DataParallel {
 public:
  /// As GradSync: `parameters` in the order of creation; `mesh` must outlive this object. Collective.
  Replicated(const ParameterList& parameters, const DeviceMesh& mesh,
             std::int64_t bucket_bytes = GradSync::default_bucket_bytes);

  const ShardList& shards() const override { return shards_; }
  void zero_grad(int) override { sync_.zero_grad(); }
  void last_microbatch(bool last) override { sync_.last_microbatch(last); }
  GradSyncReport finish() override { return sync_.finish(); }
  void sum_squares(Tensor& sum) const override;
  void require_summed(std::string_view where) const override;
  Tensor gradient(std::size_t place) const override { return parameters_[place]->grad(); }
  void update(const UpdateShards& update_shards) override { update_shards(places_); }
  std::vector<ReplicatedTensor> copies(const std::vector<StateTensor>& tensors) const override;

 private:
  ParameterList parameters_;
  const DeviceMesh& mesh_;
  GradSync sync_;
  ShardList shards_;
  std::vector<std::size_t> places_;  // of all shards
};

}  // namespace trireme
