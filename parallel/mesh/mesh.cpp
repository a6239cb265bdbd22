#include "parallel/mesh/mesh.h"

namespace trireme {

DeviceMesh::DeviceMesh(std::shared_ptr<ProcessGroup> world, const MeshShape& shape)
    : world_(std::move(world)), shape_(shape) {
  require(world_ != nullptr, "DeviceMesh",
          "the world is null; expected a group of all ranks, as run_thread_ranks gives it, "
          "or self_group() for one rank");
  for (std::size_t i = 0; i < shape.sizes.size(); ++i)
    if (shape.sizes.at(i) < 1)
      fail(ExitCode::usage, "DeviceMesh", "the axis {} has {} ranks; expected at least 1", name(all_axes.at(i)),
           shape.sizes.at(i));
  if (shape.size(Axis::data) % shape.size(Axis::ep) != 0)
    fail(ExitCode::usage, "DeviceMesh",
         "ep={} does not divide dp x cp = {} x {}: experts are spread over those ranks; change ep, dp or cp",
         shape.size(Axis::ep), shape.size(Axis::dp), shape.size(Axis::cp));
  require(world_->size() == shape.ranks(), "DeviceMesh", "the mesh {} needs {} ranks, the world has {}",
          to_string(shape), shape.ranks(), world_->size());
  const int tp = rank() % size(Axis::tp), data = rank() / size(Axis::tp) % size(Axis::data);
  const int pp = rank() / (size(Axis::tp) * size(Axis::data));
  const int cp_size = size(Axis::cp), ep_size = size(Axis::ep);
  coords_ = {pp, data / cp_size, data % cp_size, tp, data % ep_size, data / ep_size, data};
  for (const Axis axis : all_axes) {
    std::vector<int> line;
    for (int i = 0; i < size(axis); ++i) line.push_back(neighbour(axis, i));
    std::shared_ptr<ProcessGroup>& group = groups_[static_cast<std::size_t>(axis)];
    if (axis == Axis::edp || axis == Axis::data) {  // may be the same ranks as dp: then share its group
      const std::shared_ptr<ProcessGroup>& dp = groups_[static_cast<std::size_t>(Axis::dp)];
      if (size(axis) > 1 && dp->members() == line) group = dp;
    }
    if (group == nullptr) group = size(axis) == 1 ? self_group() : world_->subgroup(line, group_name(axis));
  }
  if (size(Axis::pp) > 1 && (is_first(Axis::pp) || is_last(Axis::pp))) {
    pipeline_ends_ =
        world_->subgroup({neighbour(Axis::pp, 0), neighbour(Axis::pp, size(Axis::pp) - 1)}, "first and last stage");
  }
}

int DeviceMesh::world_rank(int pp, int data, int tp) const {
  const auto check = [&](Axis axis, int coordinate) {
    if (coordinate >= 0 && coordinate < size(axis)) return;  // formats nothing: a group may have 100,000 ranks
    fail(ExitCode::internal, "DeviceMesh", "no rank has the coordinate {} on {} of the mesh {}; expected 0 to {}",
         coordinate, name(axis), to_string(shape_), size(axis) - 1);
  };
  check(Axis::pp, pp);
  check(Axis::data, data);
  check(Axis::tp, tp);
  return world_->world_rank((pp * size(Axis::data) + data) * size(Axis::tp) + tp);
}

int DeviceMesh::neighbour(Axis axis, int coordinate) const {
  const auto at = [&](Axis a) { return a == axis ? coordinate : coord(a); };
  int data = coord(Axis::data);
  if (axis == Axis::dp || axis == Axis::cp) data = at(Axis::dp) * size(Axis::cp) + at(Axis::cp);
  if (axis == Axis::ep || axis == Axis::edp) data = at(Axis::edp) * size(Axis::ep) + at(Axis::ep);
  if (axis == Axis::data) data = coordinate;
  return world_rank(at(Axis::pp), data, at(Axis::tp));
}

/// "tp[pp=0,data=1]": the coordinates that all members share, so that the name is the same on all of them.
std::string DeviceMesh::group_name(Axis axis) const {
  std::vector<Axis> shared = {Axis::pp, Axis::data, Axis::tp};
  if (axis == Axis::dp || axis == Axis::cp) shared = {Axis::pp, axis == Axis::dp ? Axis::cp : Axis::dp, Axis::tp};
  if (axis == Axis::ep || axis == Axis::edp) shared = {Axis::pp, axis == Axis::ep ? Axis::edp : Axis::ep, Axis::tp};
  std::string text;
  for (const Axis other : shared) {
    if (other != axis) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name(other), coord(other));
  }
  return fmt::format("{}[{}]", name(axis), text);
}

std::string DeviceMesh::where() const {
  std::string text =
      fmt::format("rank {} (dp={},tp={},pp={}", rank(), coord(Axis::dp), coord(Axis::tp), coord(Axis::pp));
  for (const Axis axis : {Axis::cp, Axis::ep}) {
    if (size(axis) > 1) text += fmt::format(",{}={}", name(axis), coord(axis));
  }
  return text + ")";
}

}  // namespace trireme
