// Starts the ranks of a job: as threads of this process, or this process as one rank of a launcher's job.
// Read next: train/launch/ranks.cpp; parallel/comm/process_group.h.
#pragma once

#include <functional>
#include <string>

#include "train/launch/common_values.h"
#include "train/options/options.h"
#include "train/program/rank.h"

namespace trireme {

/// Runs `body` once per rank of the mesh, with --threads, --gemm and --verify applied. Returns the exit code when all
/// ranks have ended. Throws the error of the rank that failed first, with its place (PlacedError). Under a launcher,
/// the error is reported here and the whole job is ended, because other processes may be waiting for this one. A lost
/// rank (--timeout) also ends the job, and OUT/flight_recorder.txt then has the last actions of all ranks. Processes
/// first compare the values that must be equal: common_setup(options), and `read`, the data that each has read. If
/// values differ, it throws before any `body` runs. `memory` is appended to an error about memory: the estimate of what
/// the run needs (train/validate/memory_limit.h).
int run_ranks(const TrainOptions& options, const std::function<void(Rank&)>& body, const CommonValues& read = {},
              const std::string& memory = {});

}  // namespace trireme
