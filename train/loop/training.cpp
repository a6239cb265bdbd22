#include "train/loop/training.h"

#include <ctime>
#include <optional>

#include "train/launch/ranks.h"
#include "train/loop/rank_run.h"
#include "train/program/signals.h"
#include "train/report/memory.h"
#include "train/report/memory_limit.h"
#include "train/runs/new_folder.h"
#include "train/runs/run_folder.h"

namespace trireme {

namespace {

double bytes_of(const Batch& batch) {
  double bytes = 0;
  for (const auto& [name, tensor] : batch.tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
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
  const ParameterCounts parameters = task.parameters();
  const auto activations = [&task](const TrainOptions& options, int live) {
    return task.activation_bytes(options, live);
  };
  if (parameters.all > 0)
    require_memory(o, parameters, activations, usable_memory(o));
  else
    require_batch_memory(o, bytes_of(task.training()->make_batch(0, 1)), usable_memory(o));
  const std::string memory = parameters.all > 0 ? memory_estimate(o, parameters) : "";
  return run_ranks(
      o, [&](Rank& rank) { RankRun(task, *folder, attachments, rank).run(); }, task.common(), memory);
}

}  // namespace trireme
