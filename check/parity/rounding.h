// How much may a mesh differ from one rank? In f32 the tolerance is small, and rounding alone can exceed it where terms
// cancel, or where an optimizer uses only the signs of gradients. In bf16 and f16, two correct runs differ by several
// percent. This is the rule that build/bin/parity and build/bin/parity_matrix share.
// Read next: check/parity/rounding.cpp, examples/parity.cpp.
#pragma once

#include "check/parity/parity.h"

namespace trireme {

/// The largest relative difference to one rank that is accepted in f32 without further questions. A gradient has about
/// 60 roundings of 2^-24, in another order on every mesh: differences are near 1e-6.
inline constexpr double parity_tolerance = 1e-5;

/// Is a mesh in bf16 or f16 as close to one rank in f32 as one rank in the same dtype is? Two 16-bit runs may differ by
/// several percent because of rounding, as much as because of some bugs. But two runs that round at the same places are
/// equally far from the exact result. Returns the largest ratio of the two distances over losses, norms, gradients and
/// weights. A distance below the dtype's unit roundoff counts as the roundoff, because every result is stored with that
/// precision.
///
/// Per tensor, both distances are norms of many roundings of the same size, so in a large tensor their ratio is near 1.
/// It is larger in tensors with few elements, and with tp, which rounds partial sums before adding them. Hence the
/// limit of 6. In the covering subset of the matrix, one combination exceeds it on processors with AVX2, with 6.25 in
/// the four gains of a head's norm; rounding_reach() explains it. One rank in bf16 is at a distance of 0.02 from f32,
/// so a missing or doubled contribution shows as a ratio of tens.
double rounding_ratio(const ParityReport& mesh, const ParityReport& one_rank, DType dtype);
inline constexpr double most_rounding_ratio = 6;
/// One rank in 16 bits may have a bug, too, and a mesh is then as far from f32 as it. In the first step, rounding changes
/// the loss and the norm of the gradient, which are sums over many numbers, by a few percent at most. If one rank differs
/// from f32 by more than this in them, no mesh is accepted.
inline constexpr double most_rounding_of_sums = 0.25;
/// The unit roundoff: half the distance from 1 to the next number.
inline double roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-24; }

/// If a difference is larger than the limit, did the mesh cause it, or could any rounding? Terms may cancel in a sum,
/// and a router may choose between experts that are nearly equal. To find out, one rank runs again from weights that
/// differ by a few units of the dtype's roundoff (check/faults/disturb.h). The largest differences between these runs
/// and the reference, row by row, show how far rounding can reach.
ParityReport rounding_reach(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference);

/// The largest ratio of a difference in `report` to its limit. Above 1: rounding cannot explain it. The limit is
/// `accepted`, or most_rounding_ratio times the reach of rounding, whichever is larger.
double largest_excess(const ParityReport& report, const ParityReport& reach, double accepted);

struct ParityResult {
  double distance = 0;     ///< in f32 the largest relative difference, in 16 bits the rounding_ratio()
  double accepted = 0;     ///< the limit of the distance
  bool explained = false;  ///< the distance is above the limit, but rounding on one rank reaches as far
  double one_rank = 0;     ///< in 16 bits its first_step; see most_rounding_of_sums
  bool one_rank_is_right() const { return !(one_rank > most_rounding_of_sums); }
  bool equal() const { return one_rank_is_right() && (distance <= accepted || explained); }
};
/// Whether a mesh computes the same as one rank. `mesh`: its report against `reference`, one rank in f32. `one_rank`:
/// in bf16 and f16, the report of one rank in that dtype against the same reference; in f32, null. If the distance is
/// above the limit, one rank runs 24 times more (rounding_reach()).
ParityResult parity_result(const TrainOptions& options, const ParityReport& mesh, const ParityReport* one_rank,
                           const std::shared_ptr<const ParityReference>& reference);

}  // namespace trireme
