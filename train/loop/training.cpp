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

/// Throws if the run does not fit. `clause` becomes that of memory_clause().
PredictedMemory predicted(const Task& task, std::string& clause) {
  const TrainOptions& o = task.options();
  const DryProgram program = dry_program(task);
  PredictedMemory predicted;
  const auto memory = [&](const TrainOptions& options, int rank) {
    const RankMemory found = dry_run_memory(options, program, rank);
    if (rank == 0 && !predicted.rank) predicted.rank = found;
    return found;
  };
  std::optional<MachineMemory> need;
  try {
    need = memory_here(o, memory);
  } catch (const std::exception& error) {
    predicted = {.rank = std::nullopt, .why = error.what()};
    return predicted;
  }
  require_memory(o, *need, memory, usable_memory(o));
  clause = memory_clause(o, *need);
  return predicted;
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
  std::string clause;
  const PredictedMemory memory = predicted(task, clause);
  return run_ranks(
      o, [&](Rank& rank) { RankRun(task, *folder, attachments, rank, memory).run(); }, task.common(), clause);
}

}  // namespace trireme
