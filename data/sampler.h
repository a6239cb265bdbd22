// The sampler: which windows of the training tokens make up which batch.
//
// Samples are numbered from 0 since the first step of the run. Sample s is a window of context + 1 tokens whose start
// is drawn uniformly from all starts, as a pure function of (seed, s): Philox, no state. A step with global batch G
// that begins after c consumed samples takes the samples c .. c + G - 1; data-parallel ranks, and on each its
// micro-batches, take contiguous pieces of them. So the samples of a step do not depend on the mesh, ranks never share
// one, and resuming on another mesh needs only the number of samples consumed.
// Read next: data/prefetch.h (the same on a thread), data/eval_windows.h (validation).
#pragma once

#include <cstdint>

#include "data/source.h"
#include "data/tokens.h"

namespace trireme {

/// Random windows of the training tokens; see the top of this file.
class Sampler : public DataSource {
 public:
  /// Throws ExitCode::data when the range holds no window of context + 1 tokens.
  Sampler(TokenRange tokens, std::int64_t context, std::uint64_t seed);

  std::int64_t context() const { return context_; }
  /// First token of sample `sample` in the range: 0 <= start <= count - context - 1.
  std::int64_t start(std::int64_t sample) const;
  Batch make_batch(std::int64_t first, std::int64_t count) const override;  ///< a token_batch()

 private:
  TokenRange tokens_;
  std::int64_t context_, starts_;
  std::uint64_t seed_;
};

/// How a global batch is cut: rank `dp_rank` of `dp_size` runs micro_batches() micro-batches of `micro_batch` samples
/// per step.
struct BatchPlan {
  std::int64_t global_batch = 1;
  std::int64_t micro_batch = 1;
  int dp_rank = 0, dp_size = 1;

  /// Throws ExitCode::usage, with the arithmetic, unless micro_batch * dp_size divides global_batch.
  void check() const;
  std::int64_t micro_batches() const { return global_batch / (micro_batch * dp_size); }
  /// First sample of this rank's micro-batch `index` in the step that begins after `consumed` samples.
  std::int64_t first_sample(std::int64_t consumed, std::int64_t index) const {
    return consumed + dp_rank * (global_batch / dp_size) + index * micro_batch;
  }
};

}  // namespace trireme
