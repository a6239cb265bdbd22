// Positions: which tokens of the sequence a rank holds, as runs of neighbours. Everything that depends on a token's
// position (learned positions, rotary angles, dropout masks, the causal mask) uses this file, so that it is the same on
// every mesh.
//
// Two cuts, one after the other:
//
//   cp  The sequence of T tokens is cut into 2 cp chunks, and rank r holds chunks r and 2 cp - 1 - r ("zigzag"): one
//       chunk is early, where the causal mask leaves few keys, and one is late, so that every rank has the same work
//       (Llama 3 report, section 3.3.2). Attention works on these T/cp tokens, the same on all tp ranks.
//   tp  Under sequence parallelism tp rank i holds part i of these: T/(cp tp) tokens of the residual stream.
// Read next: nn/ring_attention.h.
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

/// In local order, without gaps; local neighbours that are also neighbours in the sequence are in one run.
using PositionRuns = std::vector<PositionRun>;

/// What cp rank `rank` of `cp` holds of a sequence of `length` tokens. If cp > 1, 2 cp must divide `length`.
PositionRuns zigzag(std::int64_t length, int cp, int rank);
/// Part `index` of `parts` equal parts of the local tokens, with local numbers from 0.
PositionRuns part(const PositionRuns& runs, int parts, int index);

/// The runs shifted by `first` positions: for a text whose beginning is in a cache (nn/kv_cache.h).
PositionRuns shifted(PositionRuns runs, std::int64_t first);

/// What attention on this rank holds of a sequence of `length` tokens (all cp and tp ranks together).
PositionRuns attention_positions(const DeviceMesh& mesh, std::int64_t length);
/// What the residual stream [B, T/cp(/tp), D] on this rank holds of it.
PositionRuns residual_positions(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t length);
/// The length of a sequence if the residual stream on each rank holds `local` tokens of it.
std::int64_t sequence_length(const DeviceMesh& mesh, const Parallelism& parallelism, std::int64_t local);
/// Only multiples of this length divide evenly over the ranks that share a sequence.
std::int64_t sequence_multiple(const MeshShape& mesh, const Parallelism& parallelism);

/// The position of every local token -> [T] i32.
Tensor position_ids(const PositionRuns& runs);

}  // namespace trireme::nn
