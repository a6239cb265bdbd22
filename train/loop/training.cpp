#include "train/loop/training.h"

#include <ctime>
#include <optional>

#include "train/launch/ranks.h"
#include "train/loop/rank_run.h"
#include "train/program/signals.h"
#include "train/runs/new_folder.h"
#include "train/runs/run_folder.h"
#include "train/validate/memory_limit.h"

namespace trireme {

namespace {

/// What a run needs, of rank 0 and of all ranks of this machine; nothing if it is not known.
struct Prediction {
  std::optional<RankMemory> first;
  std::string clause;  ///< memory_clause()
};

/// Throws if the run does not fit.
Prediction predicted(const Task& task) {
  const TrainOptions& o = task.options();
  const DryProgram program = dry_program(task);
  Prediction prediction;
  const auto memory = [&](const TrainOptions& options, int rank) {
    std::optional<RankMemory> found = dry_run_memory(options, program, rank);
    if (rank == 0 && !prediction.first) prediction.first = found;
    return found;
  };
  if (const std::optional<MachineMemory> need = memory_here(o, memory)) {
    require_memory(o, *need, memory, usable_memory(o));
    prediction.clause = memory_clause(o, *need);
  }
  return prediction;
}

}  // namespace

int train(Task& task, RunAttachments& attachments) {
  TrainOptions& o = task.options();
  if (!o.run.dry_run) catch_broken_pipes();
  std::optional<RunFolder> folder;
  if (o.run.chooses_folder() && o.run.out.empty())
    o.run.out = free_run_folder(task.name(), std::time(nullptr)).string();
  try {
    folder.emplace(o.run.out, o.run.resume);
    attachments.acquire(o);
  } catch (const Error&) {
    if (!o.mesh.processes) throw;
    // If ranks were given different --resume or --out, report that difference instead.
    const std::exception_ptr refused = std::current_exception();
    return run_ranks(o, [&](Rank&) { std::rethrow_exception(refused); });
  }
  task.load();
  const Prediction memory = predicted(task);
  return run_ranks(
      o, [&](Rank& rank) { RankRun(task, *folder, attachments, rank, memory.first).run(); }, task.common(),
      memory.clause);
}

}  // namespace trireme
