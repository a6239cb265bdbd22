// DeviceMesh: the ranks of a job as a grid with named axes, and a process group along every axis.
//
// The grid axes are ordered from pp, outermost, to tp, innermost, so that tensor-parallel neighbours, which communicate
// most, get neighbouring ranks. Three more axes are other views of the same grid and add no ranks:
//
//   data  dp and cp as one axis: the ranks that hold copies of a dense weight. Its coordinate is dp * CP + cp
//   ep    data cut into runs of ep neighbours, which hold different experts
//   edp   the ranks of data that hold the same experts: data = edp * EP + ep
//
// World rank = (pp * DATA + data) * TP + tp. A mesh is always passed explicitly: ranks may be threads of one process,
// so there is no global "current" mesh. Read next: parallel/mesh/placement.h (what a tensor means on an axis).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "parallel/comm/process_group.h"

namespace trireme {

/// The axes: four of the grid, and three views of it.
enum class Axis : std::uint8_t { pp, dp, cp, tp, ep, edp, data };
inline constexpr std::array<Axis, 4> grid_axes = {Axis::pp, Axis::dp, Axis::cp, Axis::tp};
inline constexpr std::array<Axis, 7> all_axes = {Axis::pp, Axis::dp,  Axis::cp,  Axis::tp,
                                                 Axis::ep, Axis::edp, Axis::data};
/// The place of an axis in all_axes. Throws ExitCode::internal for a number that is none of them.
inline std::size_t index(Axis axis) {
  const auto place = static_cast<std::size_t>(axis);
  require(place < all_axes.size(), "mesh", "{} is not an axis; expected one of Axis::pp to Axis::data", place);
  return place;
}
/// "dp", "tp", ...
std::string_view name(Axis axis);

/// How many ranks lie along each axis. ep must divide dp x cp.
struct MeshShape {
  std::array<int, grid_axes.size() + 1> sizes = {1, 1, 1, 1, 1};  ///< pp, dp, cp, tp, ep: what --mesh says

  int size(Axis axis) const;  ///< ranks along an axis
  int& at(Axis axis);         ///< to set a size; throws for data and edp, which follow from the others
  int ranks() const { return size(Axis::pp) * size(Axis::data) * size(Axis::tp); }
  bool operator==(const MeshShape&) const = default;
};

/// "dp=2,tp=2,pp=2,cp=2,ep=4"; omitted axes are 1; "dp=auto" uses all ranks that the other axes leave of `world` (world
/// 0: unknown, auto is 1). Throws ExitCode::usage for an unknown or repeated axis, a size that is not a positive
/// number, a product that is not `world`, or ep that does not divide dp x cp.
MeshShape parse_mesh(std::string_view text, int world);
std::string to_string(const MeshShape& shape);  ///< "dp=2,tp=2,pp=1", and cp and ep when they are not 1

/// The ranks of a job as a grid, and this rank in it.
/// @snippet training_test.cpp ranks
class DeviceMesh {
 public:
  /// Collective over `world`, whose size must be shape.ranks(). Throws ExitCode::usage for a size below 1, and if ep
  /// does not divide dp x cp.
  DeviceMesh(std::shared_ptr<ProcessGroup> world, const MeshShape& shape);

  const MeshShape& shape() const { return shape_; }
  int size(Axis axis) const { return shape_.size(axis); }  ///< ranks along an axis
  /// This rank's place along an axis, from 0.
  int coord(Axis axis) const { return coords_[index(axis)]; }
  int rank() const { return world_->rank(); }
  bool is_first(Axis axis) const { return coord(axis) == 0; }              ///< whether this rank's coordinate is 0
  bool is_last(Axis axis) const { return coord(axis) == size(axis) - 1; }  ///< whether it is the largest

  ProcessGroup& world() const { return *world_; }
  /// The ranks that differ from this one only along `axis`, ordered by that coordinate.
  ProcessGroup& group(Axis axis) const { return *groups_[index(axis)]; }
  /// The first and the last rank of this rank's pipeline, which share a tied embedding; null on other ranks, and
  /// without a pipeline.
  ProcessGroup* pipeline_ends() const { return pipeline_ends_.get(); }

  /// Of the rank at these coordinates. Throws ExitCode::internal if there is none.
  int world_rank(int pp, int data, int tp) const;
  std::string where() const;  ///< "rank 5 (dp=0,tp=1,pp=1)", with cp and ep when there are any; for messages

 private:
  int neighbour(Axis axis, int coordinate) const;  ///< the rank that differs from this one only in that coordinate
  std::string group_name(Axis axis) const;

  std::shared_ptr<ProcessGroup> world_;
  MeshShape shape_;
  std::array<int, all_axes.size()> coords_{};
  std::array<std::shared_ptr<ProcessGroup>, all_axes.size()> groups_;
  std::shared_ptr<ProcessGroup> pipeline_ends_;
};

}  // namespace trireme
