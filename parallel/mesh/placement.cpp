#include "parallel/mesh/placement.h"

namespace trireme {

std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::replicated:
      return "R";
    case Placement::Kind::invariant:
      return "I";
    case Placement::Kind::partial:
      return "P";
    case Placement::Kind::sharded:
      return fmt::format("S({})", placement.dim);
  }
  return "?";
}

const Placement& Placements::on(Axis axis) const {
  static constexpr Placement stage = placement::I;
  switch (axis) {
    case Axis::dp:
      return dp;
    case Axis::tp:
      return tp;
    case Axis::pp:
      return stage;
  }
  return stage;
}

Rectangle local_rectangle(const Shape& global, const Placements& placements, const DeviceMesh& mesh,
                          std::string_view what) {
  Rectangle rectangle{global, global};
  for (std::int64_t& start : rectangle.start) start = 0;
  const Shape local = local_shape(global, placements, mesh, what);
  for (const Axis axis : all_axes) {
    const Placement& placement = placements.on(axis);
    if (placement.sharded()) rectangle.start[placement.dim] += mesh.coord(axis) * local[placement.dim];
  }
  return rectangle;
}

Shape local_shape(const Shape& global, const Placements& placements, const DeviceMesh& mesh, std::string_view what) {
  Shape local = global;
  for (const Axis axis : all_axes) {
    const Placement& placement = placements.on(axis);
    if (!placement.sharded()) continue;
    std::int64_t& extent = local[placement.dim];
    if (extent % mesh.size(axis) != 0) {
      fail(ExitCode::usage, what, "dim {} of {} does not divide over {}={}; change the model's sizes or --mesh",
           placement.dim, global, name(axis), mesh.size(axis));
    }
    extent /= mesh.size(axis);
  }
  return local;
}

}  // namespace trireme
