// The folder of a run that was started without --out: runs/NAME-DATE, with "-2" and so on after it if that is taken.
// Read next: train/runs/run_folder.h.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>

#include "parallel/comm/process_group.h"
#include "train/options/options.h"

namespace trireme {

/// The first path of that form that does not exist. Creates nothing, so another run may take it. `name`: Task::name().
std::filesystem::path free_run_folder(const std::string& name, std::time_t now);

/// Creates the folder on rank 0, and sets `out` and `config` of the options to it: those of each process, and for ranks
/// that are threads those that they share. If another run has taken the planned folder (`run.out`), creates the next
/// one that is free. Collective. Throws ExitCode::io on all ranks.
void create_run_folder(ProcessGroup& world, RunOptions& run, const std::string& name, bool processes);

}  // namespace trireme
