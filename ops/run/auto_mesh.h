// --mesh auto: the mesh of this machine on which a step of this task is predicted to take the least time.
// Read next: ops/plan/this_machine.h.
#pragma once

#include <string>
#include <vector>

#include "train/loop/task.h"

namespace trireme {

/// A mesh, and its predicted time.
struct MeasuredMesh {
  MeshShape mesh;
  std::int64_t micro_batch = 1;  ///< with which each dp rank gets the same share of the global batch
  double seconds = 0;            ///< of a step
};

/// All meshes whose ranks divide the cores, that the task allows and that fit into memory, the fastest first. The global batch stays that of
/// one rank. Loads the data, and takes about two steps of one rank for each mesh.
std::vector<MeasuredMesh> measured_meshes(Task& task);

/// Sets --mesh and the micro-batch of `task` to the first of measured_meshes(). Returns a line that says why. Throws
/// ExitCode::usage under a launcher or on a GPU.
std::string choose_mesh(Task& task, int launcher_ranks);

}  // namespace trireme
