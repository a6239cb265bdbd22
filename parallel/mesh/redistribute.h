// redistribute: the differentiable collectives between placements. (Ring attention, cross-entropy and BatchNorm
// communicate inside operations of their own.) It moves a tensor from one placement to another along one mesh axis; the
// backward of each move follows from the gradient's placements:
//
//   move        forward          backward         used by
//   I -> R      identity         all-reduce       input of a column-parallel linear
//   P -> I      all-reduce       identity         output of a row-parallel linear
//   S -> R      all-gather       reduce-scatter   sequence parallel, into a column-parallel linear
//   P -> S      reduce-scatter   all-gather       sequence parallel, out of a row-parallel linear
//   S -> I      all-gather       slice            gathering an output
//   I -> S      slice            all-gather       entering a sequence-sharded region
//   S(a)->S(b)  all-to-all       all-to-all back  moving a shard between dims
//   P -> R      all-reduce       all-reduce       rare
//
// Shoeybi et al. 2019 (Megatron-LM, section 3) call I -> R "f" and P -> I "g"; Korthikanti et al. 2022 (section 4.2)
// add S -> R and P -> S. On an axis of size 1 every move is the identity and records nothing.
// Read next: parallel/mesh/redistribute.cpp, nn/linear.h.
#pragma once

#include "parallel/mesh/placement.h"

namespace trireme {

/// Collective over mesh.group(axis). Throws ExitCode::internal for a pair that is not in the table.
/// @snippet training_test.cpp redistribute
Tensor redistribute(const Tensor& x, const DeviceMesh& mesh, Axis axis, Placement from, Placement to);

}  // namespace trireme
