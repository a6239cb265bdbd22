// Starting the ranks of a job: threads of this process, or this process as one of a launcher's.
// Read next: train/ranks.cpp; parallel/comm/process_group.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/process_group.h"
#include "parallel/comm/watch/straggler.h"
#include "parallel/mesh/mesh.h"
#include "train/common_values.h"
#include "train/options.h"

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

/// Runs `body` once per rank of the mesh, with the threads and the matrix product of --threads and --gemm and the
/// checks of --verify, and returns when all have ended: their exit code. Throws the error of the rank that failed
/// first, with its place (PlacedError); under a launcher it is reported here and the whole job is ended, as other
/// processes may be waiting for this one. A rank that is lost (--timeout) ends the job too: with what all ranks did
/// last in OUT/flight_recorder.txt. Processes first compare what they must have in common, common_setup(options) and
/// `read`: what this one has read beside its flags. Where they differ, it throws before any `body` runs.
/// A rank that runs out of memory is also told `memory`: what was expected to be needed (train/memory.h).
int run_ranks(const TrainOptions& options, const std::function<void(Rank&)>& body, const CommonValues& read = {},
              const std::string& memory = {});

}  // namespace trireme
