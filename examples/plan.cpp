// Will it fit, how fast, which mesh:
//
//   build/bin/plan --machine examples/machines/h100_sxm_ndr.json --devices 32 --model gpt2-1.5b --dtype bf16
//     --micro-batch 4 --global-batch 512
//   build/bin/plan --model gpt2-124m --mesh dp=2          this machine: kernels and exchanges are measured
//
// With --devices N it tries every mesh of N devices; without, it plans for --mesh. Nothing is trained: each rank's program
// makes two steps that compute nothing, and a simulation finds how long they would take.
// Read next: ops/plan/predict.h, docs/planner.md.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "check/parity/models.h"
#include "examples/tasks/list.h"
#include "ops/plan/cluster.h"
#include "ops/plan/search.h"
#include "ops/plan/this_machine.h"
#include "train/options/options.h"
#include "train/program/program.h"
#include "train/program/units.h"
#include "train/validate/memory_limit.h"

using namespace trireme;

namespace {

struct PlanOptions {
  std::string task = "gpt", machine;
  std::optional<std::int64_t> devices;
  std::int64_t shown = 5;
};

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", 1e3 * seconds) : fmt::format("{:.2f} s", seconds);
}

std::string parts_text(const plan::Prediction& prediction, std::size_t most) {
  std::string text;
  for (const auto& [name, seconds] : plan::parts(prediction)) {
    if (most-- == 0) break;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", name, 100 * seconds / prediction.seconds);
  }
  return text;
}

/// `peak_flops`: of a rank; 0: not known.
void print_choice(const plan::Choice& choice, const Task& task, const TrainOptions& options, double peak_flops) {
  const plan::Prediction& p = choice.prediction;
  const double per_second = static_cast<double>(options.batch_sizes().global_batch * task.targets()) / p.seconds;
  std::string use;
  if (peak_flops > 0)
    use = fmt::format(", {:.1f} % of the peak", 100 * p.flops / p.seconds / peak_flops / choice.mesh.ranks());
  fmt::print("{:<28} {:>10}  {:>10.0f} {}{}  {} a rank\n    {}\n", to_string(choice.mesh), seconds_text(p.seconds),
             per_second, task.unit_names().per_second, use, format_bytes(static_cast<double>(choice.memory.peak)),
             parts_text(p, 6));
}

/// On this machine, one mesh.
int plan_here(Task& task) {
  const TrainOptions& options = task.options();
  const DryProgram program = dry_program(parity_model(task), task.options());
  const auto memory = [&program](const TrainOptions& o, int rank) { return dry_run_memory(o, program, rank); };
  require_memory(options, memory_here(options, memory), memory, usable_memory(options));  // it will be used
  plan::ThisMachine machine;
  plan::Prediction prediction{.ranks = machine.predict(options, program)};
  prediction.seconds = plan::step_seconds(prediction.ranks);
  print_choice({options.mesh.shape, prediction, plan::largest_memory(options, program)}, task, options, 0);
  return 0;
}

int plan_there(Task& task, const PlanOptions& asked) {
  const plan::Cluster cluster = plan::read_cluster(asked.machine);
  const plan::ClusterModel machine(cluster);
  const TrainOptions given = task.options();
  const auto options_on = [&](const MeshShape& mesh) {
    TrainOptions& o = task.options();
    o = given;
    o.mesh.axes = to_string(mesh);
    resolve(o, 0);
    task.validate();
    TrainOptions options = o;
    options.precision.device = name(Device::cuda);
    return options;
  };
  const std::vector<MeshShape> meshes =
      asked.devices ? plan::meshes(static_cast<int>(*asked.devices), static_cast<int>(task.experts().count))
                    : std::vector{given.mesh.shape};
  const plan::Search found =
      plan::search(meshes, options_on, dry_program(parity_model(task), task.options()), machine, cluster.device.memory);
  fmt::print("{}\n", cluster.name);
  const double peak = given.precision.dtype == DType::f32 ? cluster.device.f32_flops : cluster.device.bf16_flops;
  for (std::size_t i = 0; i < std::min(found.choices.size(), static_cast<std::size_t>(asked.shown)); ++i)
    print_choice(found.choices[i], task, options_on(found.choices[i].mesh), peak);
  fmt::print("{} meshes fit, {} do not, {} are impossible\n", found.choices.size(), found.too_large.size(),
             found.impossible.size());
  if (found.choices.empty() && !found.too_large.empty())
    fmt::print("the smallest, {}, needs {} a rank of {}: {}\n", to_string(found.too_large.front().first),
               format_bytes(static_cast<double>(found.too_large.front().second.peak)),
               format_bytes(cluster.device.memory), to_string(found.too_large.front().second));
  if (found.choices.empty() && found.too_large.empty() && !found.impossible.empty())
    fmt::print("{}: {}\n", to_string(found.impossible.front().first), found.impossible.front().second);
  return found.choices.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    const std::unique_ptr<Task> task = chosen_task(argc, argv);
    PlanOptions asked;
    Flags flags("plan", "Predicts memory and time of a training step, and finds the best mesh.");
    flags.example("plan --machine examples/machines/h100_sxm_ndr.json --devices 32 --model gpt2-1.5b --dtype bf16");
    declare_task_choice(flags, asked.task);
    flags.group("plan");
    flags.add("machine", "FILE", asked.machine, "the machine, as a file of its figures; empty: this one, measured");
    flags.add("devices", "N", asked.devices, "none", "try every mesh of N devices of --machine; none: --mesh alone",
              Range::count());
    const auto there = [&asked] { return !asked.machine.empty(); };
    flags.only_with("machine", "FILE", there);
    flags.add("show", "N", asked.shown, "meshes to print", Range::count());
    flags.only_with("machine", "FILE", there);
    task->declare_model(flags);
    task->declare_parity_data(flags);
    TrainOptions& options = task->options();
    declare_batch(flags, options.batch);
    declare_mesh(flags, options.mesh);
    declare_precision(flags, options.precision);
    declare_optimizer(flags, options.optimizer);
    if (!flags.parse_or_print(argc, argv)) return 0;
    resolve(options, 0);
    flags.refuse_unused();
    task->prepare_parity();
    task->validate();
    return asked.machine.empty() ? plan_here(*task) : plan_there(*task, asked);
  });
}
