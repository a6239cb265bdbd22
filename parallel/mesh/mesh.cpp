#include "parallel/mesh/mesh.h"

namespace trireme {

DeviceMesh::DeviceMesh(std::shared_ptr<ProcessGroup> world, const MeshShape& shape)
    : world_(std::move(world)), shape_(shape) {
  require(world_->size() == shape.ranks(), "DeviceMesh", "the mesh {} needs {} ranks, the world has {}",
          to_string(shape), shape.ranks(), world_->size());
  int rest = rank();
  for (const Axis axis : {Axis::tp, Axis::dp, Axis::pp}) {  // tp varies fastest
    coords_[static_cast<std::size_t>(axis)] = rest % size(axis);
    rest /= size(axis);
  }
  const int pp = coord(Axis::pp), dp = coord(Axis::dp), tp = coord(Axis::tp);
  for (const Axis axis : all_axes) {
    std::vector<int> line;
    for (int i = 0; i < size(axis); ++i) {
      line.push_back(world_rank(axis == Axis::pp ? i : pp, axis == Axis::dp ? i : dp, axis == Axis::tp ? i : tp));
    }
    std::string shared;  // the coordinates that all members have: the name is the same on each of them
    for (const Axis other : all_axes) {
      if (other != axis) shared += fmt::format("{}{}={}", shared.empty() ? "" : ",", name(other), coord(other));
    }
    const std::string group_name = fmt::format("{}[{}]", name(axis), shared);
    groups_[static_cast<std::size_t>(axis)] = size(axis) == 1 ? self_group() : world_->subgroup(line, group_name);
  }
  if (size(Axis::pp) > 1 && (is_first(Axis::pp) || is_last(Axis::pp))) {
    pipeline_ends_ =
        world_->subgroup({world_rank(0, dp, tp), world_rank(size(Axis::pp) - 1, dp, tp)}, "first and last stage");
  }
}

std::string DeviceMesh::where() const {
  return fmt::format("rank {} (dp={},tp={},pp={})", rank(), coord(Axis::dp), coord(Axis::tp), coord(Axis::pp));
}

}  // namespace trireme
