// Positions: which tokens of the sequence a rank holds, as runs of neighbours. Whatever depends on where a token stands
// (learned positions, rotary angles, dropout masks, the causal mask) asks here, so that a mesh cannot change it.
//
// Two cuts, one after the other:
//
//   cp  The sequence of T tokens is cut into 2 cp chunks, and rank r holds chunks r and 2 cp - 1 - r ("zigzag"): one
//       from the cheap end of the causal triangle and one from the dear end, so that every rank has the same work
//       (Llama 3 report, section 3.3.2). That is what attention works on: T/cp tokens, the same on all tp ranks.
//   tp  Under sequence parallelism tp rank i holds part i of those: T/(cp tp) tokens of the residual stream.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "nn/build.h"

namespace trireme::nn {

/// Tokens local .. local + length of a rank are tokens global .. global + length of the sequence.
struct PositionRun {
  std::int64_t local = 0, global = 0, length = 0;
  bool operator==(const PositionRun&) const = default;
};

/// In local order, without gaps; neighbours that also continue each other in the sequence are one run.
using PositionRuns = std::vector<PositionRun>;

/// What cp rank `rank` of `cp` holds of a sequence of `length` tokens, which 2 cp must divide when cp > 1.
PositionRuns zigzag(std::int64_t length, int cp, int rank);
/// Part `index` of `parts` equal parts of the local tokens, counted from 0 again.
PositionRuns part(const PositionRuns& runs, int parts, int index);

/// The same tokens `first` positions further on: of a text whose beginning is held elsewhere (nn/kv_cache.h).
PositionRuns from(std::int64_t first, PositionRuns runs);

/// What attention on this rank holds of a sequence of `length` tokens (all cp and tp ranks together).
PositionRuns attention_positions(const DeviceMesh& mesh, std::int64_t length);
/// What the residual stream [B, T/cp(/tp), D] on this rank holds of it.
PositionRuns residual_positions(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t length);
/// The length of the sequence of which the residual stream on each rank holds `local` tokens.
std::int64_t sequence_length(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t local);
/// Only multiples of this length divide evenly over the ranks that share a sequence.
std::int64_t sequence_multiple(const MeshShape& mesh, const Parallelism& parallelism);

/// The position of every local token -> [T] i32.
Tensor position_ids(const PositionRuns& runs);

}  // namespace trireme::nn
