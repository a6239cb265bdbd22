// --mesh auto: the mesh of this machine on which a step of this task takes the least time. A step is predicted on every
// possible mesh. Predictions are a few percent off (docs/planner.md), so a few steps are made on those meshes that may
// be the fastest.
// Read next: ops/plan/this_machine.h.
#pragma once

#include <string>
#include <vector>

#include "train/loop/task.h"

namespace trireme {

/// A mesh, and the time of a step on it.
struct MeshTime {
  MeshShape mesh;
  std::int64_t micro_batch = 1;  ///< with which each dp rank gets the same share of the global batch
  double predicted = 0;          ///< seconds
  double measured = 0;           ///< seconds; 0: not measured, as the prediction was too slow
};

/// All meshes whose ranks divide the cores, that the task allows and that fit into memory: the fastest of those that
/// were measured first, then the others. The global batch stays that of one rank. Loads the data, and takes about two
/// steps of one rank for each mesh, and ten steps or more on those that are measured.
std::vector<MeshTime> mesh_times(Task& task);

/// Sets --mesh and the micro-batch of `task` to the first of mesh_times(). Returns a line that says why. Throws
/// ExitCode::usage under a launcher or on a GPU.
std::string choose_mesh(Task& task, int launcher_ranks);

}  // namespace trireme
