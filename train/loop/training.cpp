// From the top: a program's main() calls train_program(), which reads the flags and trains. train() loads the data and
// starts the ranks; what each of them does is in train/loop/rank_run.cpp.
#include "train/loop/training.h"

#include <ctime>
#include <optional>

#include "train/faults/injection.h"
#include "train/launch/ranks.h"
#include "train/loop/rank_run.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/signals.h"
#include "train/report/memory.h"
#include "train/report/memory_limit.h"
#include "train/runs/new_folder.h"
#include "train/runs/run_folder.h"

namespace trireme {

int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task) {
  catch_signals();
  Flags flags(program, summary);
  flags.example(program + " --data text.txt --steps 1000 --mesh dp=2 --out run1");
  declare_task(flags, task);
  return read_task_flags(argc, argv, flags, task) ? train(task) : 0;
}

void declare_task(Flags& flags, Task& task) {
  task.declare_data(flags);
  task.declare_model(flags);
  declare_training(flags, task.options());
}

bool read_task_flags(int argc, const char* const* argv, Flags& flags, Task& task) {
  const Flags::Asked asked = flags.parse(argc, argv);
  const auto print = [](const std::string& text) {
    if (launcher_rank() == 0) write_out(text);
  };
  if (asked != Flags::Asked::run && asked != Flags::Asked::print_config) {
    print(flags.answer(asked));
    return false;
  }
  TrainOptions& o = task.options();
  resolve(o, launcher_ranks());
  fault::arm_io(o.run.allow_fault_injection);
  o.run.faults = fault::from_environment(o.run.allow_fault_injection);
  task.validate();
  o.run.config = flags.config_text();
  if (asked == Flags::Asked::run) return true;
  print(flags.config_text(task.config_notes()));
  return false;
}

namespace {

double bytes_of(const Batch& batch) {
  double bytes = 0;
  for (const auto& [name, tensor] : batch.tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

}  // namespace

int train(Task& task) {
  TrainOptions& o = task.options();
  if (!o.run.dry_run) catch_broken_pipes();
  std::optional<RunFolder> folder;
  SinkResources sinks;
  if (o.run.chooses_folder() && o.run.out.empty())
    o.run.out = free_run_folder(task.name(), std::time(nullptr)).string();
  try {
    folder.emplace(o.run.out, o.run.resume);
    sinks = SinkResources::acquire(o);
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
      o, [&](Rank& rank) { RankRun(task, *folder, sinks, rank).run(); }, task.common(), memory);
}

}  // namespace trireme
