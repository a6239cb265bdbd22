#include "parallel/mesh/placement.h"

namespace trireme {
namespace {

constexpr std::array<Axis, 3> parameter_axes = {Axis::edp, Axis::ep, Axis::tp};

}  // namespace

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
  require(axis == Axis::edp || axis == Axis::ep || axis == Axis::tp, "placements",
          "a parameter has placements on edp, ep and tp, not on {}", name(axis));
  return axis == Axis::edp ? edp : axis == Axis::ep ? ep : tp;
}

std::vector<Axis> gradient_axes(const Placements& placements, const DeviceMesh& mesh) {
  std::vector<Axis> axes;
  const auto sum_over = [&](Axis axis) {
    if (mesh.size(axis) > 1) axes.push_back(axis);
  };
  const bool over_edp = placements.edp == placement::R, over_ep = placements.ep == placement::R;
  if (over_edp && over_ep) {
    sum_over(Axis::data);
  } else if (over_edp || over_ep) {
    sum_over(over_edp ? Axis::edp : Axis::ep);
  }
  if (placements.tp == placement::R) sum_over(Axis::tp);
  return axes;
}

// Over data and then tp, of a parameter that is R on tp: the groups of the first sum have different terms. Those of the
// second have equal ones, which are the results of the first.
SumOrder order_of_gradients(const Placements& placements, Axis axis, const DeviceMesh& mesh) {
  const bool copies = axis == Axis::tp ? mesh.size(Axis::data) > 1
                                       : mesh.size(Axis::tp) > 1 && placements.tp.kind == Placement::Kind::invariant;
  return copies ? SumOrder::ranks : SumOrder::any;
}

std::vector<Axis> shard_axes(const Placements& placements, const DeviceMesh& mesh) {
  std::vector<Axis> axes;
  for (const Axis axis : parameter_axes) {
    if (mesh.size(axis) > 1 && placements.on(axis).sharded()) axes.push_back(axis);
  }
  return axes;
}

Rectangle local_rectangle(const Shape& global, const Placements& placements, const DeviceMesh& mesh,
                          std::string_view what) {
  Rectangle rectangle{global, global};
  for (std::int64_t& start : rectangle.start) start = 0;
  const Shape local = local_shape(global, placements, mesh, what);
  for (const Axis axis : parameter_axes) {
    const Placement& placement = placements.on(axis);
    if (placement.sharded()) rectangle.start[placement.dim] += mesh.coord(axis) * local[placement.dim];
  }
  return rectangle;
}

Shape local_shape(const Shape& global, const Placements& placements, const DeviceMesh& mesh, std::string_view what) {
  Shape local = global;
  for (const Axis axis : parameter_axes) {
    const Placement& placement = placements.on(axis);
    if (!placement.sharded()) continue;
    if (placement.dim < 0 || placement.dim >= global.dims())
      fail(ExitCode::usage, what,
           "the placement S({}) on {} of a parameter {}; expected a dim from 0 to {}; change the "
           "placement",
           placement.dim, name(axis), global, global.dims() - 1);
    std::int64_t& extent = local[placement.dim];
    if (extent % mesh.size(axis) != 0) {
      fail(ExitCode::usage, what,
           "dim {} of {} does not divide over {}={}; change the model's sizes or the mesh (--mesh)", placement.dim,
           global, name(axis), mesh.size(axis));
    }
    extent /= mesh.size(axis);
  }
  return local;
}

}  // namespace trireme
