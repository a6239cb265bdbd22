// Placement: what a rank's local tensor means along one mesh axis. There are four kinds, so that the gradient's meaning
// is also defined:
//
//   R     replicated; each rank uses its copy differently, so the gradient is the sum of the ranks' gradients
//   I     invariant: replicated; all ranks use their copies alike, so each has the whole gradient
//   P     partial: the value is the sum over the axis
//   S(d)  sharded on dim d, in rank order, evenly
//
// PyTorch's DTensor calls both R and I Replicate.
//
// Read next: parallel/mesh/redistribute.h (the moves between them).
#pragma once

#include <array>
#include <string>

#include "core/kernels.h"  // Rectangle
#include "parallel/mesh/mesh.h"

namespace trireme {

struct Placement {
  /// See the top of this file.
  enum class Kind : std::uint8_t { replicated, invariant, partial, sharded };
  Kind kind = Kind::invariant;
  int dim = 0;  ///< only for sharded

  bool sharded() const { return kind == Kind::sharded; }
  bool operator==(const Placement& other) const {
    return kind == other.kind && (kind != Kind::sharded || dim == other.dim);
  }
};

namespace placement {
inline constexpr Placement R{Placement::Kind::replicated, 0};
inline constexpr Placement I{Placement::Kind::invariant, 0};
inline constexpr Placement P{Placement::Kind::partial, 0};
constexpr Placement S(int dim) { return {Placement::Kind::sharded, dim}; }  ///< sharded on `dim`
}  // namespace placement

std::string to_string(const Placement& placement);  ///< "R", "I", "P", "S(1)"

/// The placements of a parameter. A dense parameter is R on data, which is edp x ep; an expert is S on ep. There is
/// none on pp: a parameter belongs to one stage. A tied one is on two, which add their gradients (GradSync::finish()).
struct Placements {
  Placement edp = placement::R;
  Placement ep = placement::R;
  Placement tp = placement::I;
  const Placement& on(Axis axis) const;  ///< of edp, ep and tp
};

/// The axes over which a parameter's gradient is summed: those on which it is R. R on both edp and ep gives data.
/// Leaves out axes of size 1.
std::vector<Axis> gradient_axes(const Placements& placements, const DeviceMesh& mesh);
/// In which order the gradient of a parameter with these placements may be summed over `axis`, one of its
/// gradient_axes(). SumOrder::ranks if several groups sum the same terms, because their results must be equal bit for
/// bit: over data, edp and ep if the parameter is I on tp, and over tp if data has more than one rank. Otherwise
/// SumOrder::any, which may be faster.
SumOrder order_of_gradients(const Placements& placements, Axis axis, const DeviceMesh& mesh);
/// The axes of more than one rank over which a parameter is cut: a norm sums squares over them.
std::vector<Axis> shard_axes(const Placements& placements, const DeviceMesh& mesh);

/// The part of a global tensor that this rank holds. Throws ExitCode::usage naming `what` when an extent does not
/// divide evenly.
Rectangle local_rectangle(const Shape& global, const Placements& placements, const DeviceMesh& mesh,
                          std::string_view what);
/// The shape of that part.
Shape local_shape(const Shape& global, const Placements& placements, const DeviceMesh& mesh, std::string_view what);

}  // namespace trireme
