// The copies of a model that the ranks of dp hold, for a program whose copies do different work: each is a mesh of its
// own, and the copies do not talk while the model computes. With experts divided over ep, a copy has several dp ranks.
// Read next: train/gpt/text_batches.h, parallel/mesh/mesh.h.
#pragma once

#include <memory>

#include "parallel/mesh/mesh.h"

namespace trireme {

/// How many copies of a model a mesh holds: dp, unless ep needs ranks of several dp coordinates.
int model_copies(const MeshShape& shape);

/// One of the copies, on each of its ranks.
struct ModelCopy {
  int copies = 1;
  int number = 0;                       ///< of this rank's copy, from 0; the world's first rank is in copy 0
  std::shared_ptr<ProcessGroup> group;  ///< its ranks, in the order of the world
  MeshShape shape;                      ///< of these ranks
};
/// The copy of this rank of a mesh of `shape`. Collective over `world`.
ModelCopy model_copy(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape);

}  // namespace trireme
