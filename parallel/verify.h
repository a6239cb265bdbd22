// The copies of a model's parameters: which ranks hold the same weights. They are along data (edp for experts), along tp
// where a parameter is not cut over it, and at the two ends of the pipeline for a tied embedding. A --verify run compares
// them bit by bit after every step; every run compares their hashes now and then (train/replica_check.h).
#pragma once

#include "nn/parameter.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// A weight of this rank, or a shard of one, that other ranks hold too.
struct Copied {
  std::string name;     ///< of the parameter
  const char* kind;     ///< "parameter", "tied parameter" or "shard of parameter": for messages
  Tensor value;         ///< this rank's copy
  Rectangle rectangle;  ///< where it lies in the whole: copies have the same
  ProcessGroup* group;  ///< the ranks that hold it too; a weight may be listed for several groups
};

/// In one order on all ranks of each group; groups of one rank are left out. `parameters` as the model made them, `tied`
/// as GradSync::tied() has them.
std::vector<Copied> copies_of(const nn::ParameterList& parameters, const nn::ParameterList& tied,
                              const DeviceMesh& mesh);

/// Compares them bit by bit, and throws ExitCode::desync naming the parameter, two ranks and their first elements that
/// differ. Collective over the mesh.
void verify_copies(const std::vector<Copied>& copies);

}  // namespace trireme
