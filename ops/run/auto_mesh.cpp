#include "ops/run/auto_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/cores.h"
#include "ops/plan/search.h"
#include "ops/plan/this_machine.h"
#include "train/validate/memory_limit.h"

namespace trireme {
namespace {

/// The largest micro-batch up to `most` that divides a dp rank's share.
std::int64_t micro_batch_of(std::int64_t share, std::int64_t most) {
  std::int64_t size = std::min(share, most);
  while (share % size != 0) --size;
  return size;
}

/// The task's options on a mesh; nothing if there can be none.
std::optional<TrainOptions> options_on(Task& task, const TrainOptions& given, const MeshShape& mesh) {
  const BatchSizes sizes = given.batch_sizes();
  const int dp = mesh.size(Axis::dp);
  if (sizes.global_batch % dp != 0) return std::nullopt;
  TrainOptions& o = task.options();
  o = given;
  o.mesh.axes = to_string(mesh);
  o.batch = {.micro_batch = micro_batch_of(sizes.global_batch / dp, sizes.micro_batch),
             .global_batch = sizes.global_batch,
             .micro_batches = std::nullopt};
  try {
    resolve(o, 0);
    task.validate();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    return std::nullopt;
  }
  return o;
}

bool fits(const TrainOptions& options, const DryProgram& program) {
  const auto memory = [&program](const TrainOptions& o, int rank) { return dry_run_memory(o, program, rank); };
  return memory_here(options, memory).all() <= usable_memory(options).bytes;
}

}  // namespace

std::vector<MeasuredMesh> measured_meshes(Task& task) {
  TrainOptions given = task.options();
  given.mesh.axes = "dp=1";
  resolve(given, 0);
  task.load();
  const DryProgram program = dry_program(task);
  plan::ThisMachine machine;
  std::vector<MeasuredMesh> measured;
  const int cores = static_cast<int>(usable_cores().size());
  for (int ranks = 1; ranks <= cores; ++ranks) {
    if (cores % ranks != 0) continue;
    for (const MeshShape& mesh : plan::meshes(ranks, static_cast<int>(task.experts().count)))
      if (const std::optional<TrainOptions> options = options_on(task, given, mesh); options && fits(*options, program))
        measured.push_back({mesh, *options->batch.micro_batch, plan::step_seconds(machine.predict(*options, program))});
  }
  task.options() = std::move(given);
  std::stable_sort(measured.begin(), measured.end(),
                   [](const MeasuredMesh& a, const MeasuredMesh& b) { return a.seconds < b.seconds; });
  return measured;
}

std::string choose_mesh(Task& task, int launcher_ranks) {
  if (launcher_ranks > 0)
    fail(ExitCode::usage, "mesh",
         "--mesh auto measures this machine with ranks that are threads, and a launcher has started {} processes; drop "
         "the launcher, or choose a mesh",
         launcher_ranks);
  if (task.options().precision.tensor_device() != Device::cpu)
    fail(ExitCode::usage, "mesh",
         "--mesh auto measures the CPU, got --device cuda; build/bin/plan --machine plans for GPUs");
  const std::vector<MeasuredMesh> all = measured_meshes(task);
  TrainOptions& o = task.options();
  if (all.empty()) return "";  // one rank, of which the run will say why it cannot be
  const MeasuredMesh& best = all.front();
  o.mesh.axes = to_string(best.mesh);
  o.batch.micro_batch = best.micro_batch;
  std::string others;
  for (std::size_t i = 1; i < all.size(); ++i)
    others += fmt::format("{}{} {:.3g} s", others.empty() ? "; " : ", ", to_string(all[i].mesh), all[i].seconds);
  return fmt::format("--mesh auto: {}, predicted to take {:.3g} s a step{}", to_string(best.mesh), best.seconds,
                     others);
}

}  // namespace trireme
