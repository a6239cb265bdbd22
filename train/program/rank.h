// Rank: what one rank of a job is started with, and says about itself. Read next: train/launch/ranks.h, which starts
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/process_group.h"
#include "parallel/comm/watch/straggler.h"
#include "parallel/mesh/mesh.h"

namespace trireme {

/// What one rank starts with. The body says where it stands in the mesh and which step it begins, for messages should
/// this rank fail or be lost.
struct Rank {
  std::shared_ptr<ProcessGroup> world;
  std::string where;               ///< "rank 5 (dp=0,tp=1,pp=1)"
  std::int64_t step = -1;          ///< the step under way; -1 before the first
  std::string traffic{};           ///< on a GPU, how tensors go between ranks, for the table
  int exit_code = 0;               ///< what the program ends with when all have returned: the same on every rank
  std::string lost{};              ///< should this rank fail, what is lost by that and its message has to say; or empty
  std::function<void()> failed{};  ///< what to do should it fail, but not when another rank was lost; or nothing

  std::shared_ptr<watch::StragglerWatch> stragglers{};  ///< on one rank of each node

  bool first() const { return world->rank() == 0; }
  /// Tells the other ranks this one's place, and with whose times its own can be compared.
  void enter(const DeviceMesh& mesh);
  /// The step before, if any, is over. Warns of ranks that hold the others up.
  void begin_step(std::int64_t number);
};

}  // namespace trireme
