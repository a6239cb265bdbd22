#include "ops/run/auto_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
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

struct Candidate {
  MeshTime time;
  TrainOptions options;
};

/// Makes steps with each of the candidates, in turns: others may disturb one turn of a candidate, but hardly all.
void measure(std::span<Candidate> candidates, const DryProgram& program) {
  constexpr int turns = 3;
  constexpr double enough = 0.3;  // seconds of a candidate's turn
  for (int turn = 0; turn < turns; ++turn)
    for (Candidate& each : candidates) {
      const double seconds = plan::ThisMachine::measure(each.options, program, enough);
      each.time.measured = turn == 0 ? seconds : std::min(each.time.measured, seconds);
    }
}

}  // namespace

std::vector<MeshTime> mesh_times(Task& task) {
  constexpr double may_be_fastest = 1.4;  // times the shortest prediction
  TrainOptions given = task.options();
  given.mesh.axes = "dp=1";
  resolve(given, 0);
  task.load();
  const DryProgram program = dry_program(task);
  plan::ThisMachine machine;
  std::vector<Candidate> all;
  const int cores = static_cast<int>(usable_cores().size());
  for (int ranks = 1; ranks <= cores; ++ranks) {
    if (cores % ranks != 0) continue;
    for (const MeshShape& mesh : plan::meshes(ranks, static_cast<int>(task.experts().count)))
      if (const std::optional<TrainOptions> options = options_on(task, given, mesh); options && fits(*options, program))
        all.push_back({{.mesh = mesh,
                        .micro_batch = *options->batch.micro_batch,
                        .predicted = plan::step_seconds(machine.predict(*options, program))},
                       *options});
  }
  task.options() = std::move(given);
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.time.predicted; });
  const auto slow = std::ranges::find_if(
      all, [&](const Candidate& c) { return c.time.predicted > may_be_fastest * all.front().time.predicted; });
  const std::span fast(all.begin(), slow);
  if (fast.size() > 1) measure(fast, program);
  std::ranges::stable_sort(fast, {}, [](const Candidate& c) { return c.time.measured; });
  std::vector<MeshTime> times;
  for (const Candidate& each : all) times.push_back(each.time);
  return times;
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
  const std::vector<MeshTime> all = mesh_times(task);
  TrainOptions& o = task.options();
  if (all.empty()) return "";  // one rank, of which the run will say why it cannot be
  o.mesh.axes = to_string(all.front().mesh);
  o.batch.micro_batch = all.front().micro_batch;
  std::string text;
  for (const MeshTime& each : all) {
    text += fmt::format("{}{}", text.empty() ? "--mesh auto: " : "; ", to_string(each.mesh));
    if (each.measured > 0) text += fmt::format(" {:.3g} s a step,", each.measured);
    text += fmt::format(" predicted {:.3g} s", each.predicted);
  }
  return text;
}

}  // namespace trireme
