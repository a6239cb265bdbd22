// Starting the ranks of a job: threads of this process, or this process as one of a launcher's.
// Read next: train/launch/ranks.cpp; parallel/comm/process_group.h.
#pragma once

#include <functional>
#include <string>

#include "train/launch/common_values.h"
#include "train/options/options.h"
#include "train/program/rank.h"

namespace trireme {

/// Runs `body` once per rank of the mesh, with the threads and the matrix product of --threads and --gemm and the
/// checks of --verify, and returns when all have ended: their exit code. Throws the error of the rank that failed
/// first, with its place (PlacedError); under a launcher it is reported here and the whole job is ended, as other
/// processes may be waiting for this one. A rank that is lost (--timeout) ends the job too: with what all ranks did
/// last in OUT/flight_recorder.txt. Processes first compare what they must have in common, common_setup(options) and
/// `read`: what this one has read beside its flags. Where they differ, it throws before any `body` runs.
/// A rank that runs out of memory is also told `memory`: what was expected to be needed (train/report/memory.h).
int run_ranks(const TrainOptions& options, const std::function<void(Rank&)>& body, const CommonValues& read = {},
              const std::string& memory = {});

}  // namespace trireme
