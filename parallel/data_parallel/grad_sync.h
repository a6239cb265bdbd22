// GradSync: the main gradients of a model, and their sums over the mesh.
//
// A parameter's gradient is summed over exactly the axes on which its placement is R. Gradients are not divided: the
// loss already was. Gradients are f32 whatever the parameters are, and live in buckets, flat tensors filled in the
// reverse order of creation, which is about the order in which backward completes them. In the backward of the last
// micro-batch, the sum of a full bucket over data (dp and cp; edp for experts) starts while backward goes on (Li et al.
// 2020, "PyTorch Distributed", section 3.2). Earlier micro-batches only add to the buckets.
//
// With --reduction fast, gradients whose copies are summed in different groups have buckets of their own, which are
// summed in rank order (order_of_gradients in parallel/mesh/placement.h).
//
// Every rank of a group must start the same sums in the same order, but its gradients may become ready in any order. So
// a bucket that is ready early waits for the ones before it, and sums have the same bits with and without overlap. Sums
// over tp wait for finish(): during backward the tp groups belong to the layers' own collectives.
// Read next: parallel/data_parallel/grad_sync.cpp.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/later_parameters.h"
#include "parallel/parameters/parameter.h"

namespace trireme {

/// What GradSync::finish() did in a step.
struct GradSyncReport {
  double exposed_seconds = 0;  ///< spent in finish(): not hidden behind backward
  std::int64_t bytes = 0;      ///< of gradients given to sums, once per axis
  int buckets_overlapped = 0;  ///< sums that were started during backward
  int copies_overlapped = 0;   ///< hybrid sharding: of these, sums over copies of shards
};

/// Gradients in buckets, and their sums over the mesh; see the top of this file.
/// @snippet training_test.cpp ranks
class GradSync {
 public:
  static constexpr std::int64_t default_bucket_bytes = std::int64_t{25} << 20;

  /// Gives every parameter that is not frozen a zero gradient in a bucket of at most `bucket_bytes` (a larger parameter
  /// has a bucket of its own). `parameters` in the order of creation, with equal values where ranks hold copies: throws
  /// ExitCode::desync if they differ (parallel/parameters/same_model.h). So load weights before. Collective over the
  /// mesh, which must outlive this object.
  GradSync(const ParameterList& parameters, const DeviceMesh& mesh, std::int64_t bucket_bytes = default_bucket_bytes);
  GradSync(const ParameterList&, const DeviceMesh&&, std::int64_t = 0) = delete;  ///< the mesh would be gone at once
  ~GradSync();
  GradSync(const GradSync&) = delete;
  GradSync& operator=(const GradSync&) = delete;

  /// Starts a step: all gradients become 0. Call it, the backwards and finish() in this order: anything else throws
  /// ExitCode::internal. A new GradSync has gradients of 0 already.
  void zero_grad();
  /// Call before each backward; `last`: it is its stage's last of the step. Gradients that become ready in a last
  /// backward are complete, and their buckets are summed early. Without this call finish() sums everything, with the
  /// same bits.
  void last_microbatch(bool last = true) { in_last_backward_ = last; }
  /// Ends a step: all gradients are the sums over the mesh, also of parameters that took no part and of embeddings
  /// tied across stages. A second call without zero_grad() in between throws ExitCode::internal; a layer that was made
  /// after this object and has a gradient, ExitCode::usage.
  GradSyncReport finish();

  /// Parameters that both ends of the pipeline hold, in the same order on both; elsewhere empty.
  const ParameterList& tied() const { return tied_; }
  int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  struct Slot {
    ParameterPtr parameter;
    std::size_t bucket = 0;
    bool ready = false;
  };
  struct Bucket {
    Tensor gradients;                  // [n], f32
    std::vector<Axis> axes;            // to sum over
    SumOrder order = SumOrder::ranks;  // of the sum over the first of them
    std::vector<std::size_t> slots;
    std::size_t missing = 0;  // gradients not ready in this backward
    Work over_data;
  };

  /// What all parameters of a bucket have in common.
  struct BucketKey {
    std::vector<Axis> axes;
    SumOrder order;
    auto operator<=>(const BucketKey&) const = default;
  };

  void fill_buckets(const ParameterList& parameters, std::int64_t bucket_bytes);
  BucketKey key_of(const Parameter& parameter) const;
  void close_bucket(const BucketKey& key, std::vector<std::size_t> slots);
  void gradient_ready(Slot& slot);
  void launch_next();
  void sum(const Tensor& gradients, ProcessGroup& group, SumOrder order);

  const DeviceMesh& mesh_;
  LaterParameters later_;
  std::vector<Slot> slots_;         // complete once made: the hooks point into it
  std::vector<Bucket> buckets_;     // in the order in which they are summed
  std::vector<ParameterPtr> tied_;  // shared by both ends of the pipeline, in one order on both
  bool in_last_backward_ = false;
  enum class State : std::uint8_t { zero, backward, summed } state_ = State::zero;  // of the gradients
  std::size_t launched_ = 0;  // how many of buckets_, from the front
  GradSyncReport report_;
};

}  // namespace trireme
