// Batch arithmetic: micro-batch x dp x micro-batches = global batch, all in sequences. Given two of the three sizes,
// the third is inferred. Numbers that do not match are refused, and the error shows the arithmetic.
// Read next: data/sampler.h, which cuts the batch accordingly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/sampler.h"

namespace trireme {

struct BatchOptions {                              // values that are not set are inferred from the others
  std::optional<std::int64_t> micro_batch = {};    ///< sequences per micro-batch on one dp rank
  std::optional<std::int64_t> global_batch = {};   ///< sequences per step over all ranks
  std::optional<std::int64_t> micro_batches = {};  ///< micro-batches per step on one dp rank
};

/// The sizes that follow from BatchOptions and dp.
struct BatchSizes {
  std::int64_t micro_batch = 12;   ///< sequences in a micro-batch on one dp rank
  std::int64_t dp = 1;             ///< data-parallel ranks
  std::int64_t micro_batches = 1;  ///< micro-batches in a step on one dp rank: gradient accumulation
  std::int64_t global_batch = 12;  ///< sequences in a step

  /// The plan of rank `dp_rank`, for the sampler.
  BatchPlan on_rank(int dp_rank) const {
    return {
        .global_batch = global_batch, .micro_batch = micro_batch, .dp_rank = dp_rank, .dp_size = static_cast<int>(dp)};
  }
  /// If a sample has `context` tokens.
  std::int64_t tokens_per_step(std::int64_t context) const { return global_batch * context; }
};

/// Throws ExitCode::usage if the options contradict each other or the batch is too large.
BatchSizes infer_batch(const BatchOptions& options, std::int64_t dp);

/// "micro-batch 12 x dp 2 x accumulation 4 = global batch 96".
std::string to_string(const BatchSizes& sizes);

}  // namespace trireme
