// From the top: a program's main() calls train_program(), which reads the flags and trains. train() (train/loop/) loads
// the data and starts the ranks; what each of them does is in train/loop/rank_run.cpp.
#include "ops/run/train_program.h"

#include "check/faults/injection.h"
#include "ops/run/auto_mesh.h"
#include "ops/terminal/plain_sinks.h"
#include "ops/terminal/terminal_sink.h"
#include "ops/tracking/tracker.h"
#include "train/loop/training.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/screen.h"
#include "train/program/signals.h"

namespace trireme {
namespace {

std::unique_ptr<EventSink> terminal_sink(const TrainOptions& options, std::int64_t eval_every) {
  const RunOptions& run = options.run;
  Screen& screen = Screen::of_process();
  if (run.json) return std::make_unique<JsonSink>(screen);
  if (run.quiet) return std::make_unique<QuietSink>(screen);
  return std::make_unique<TerminalSink>(screen,
                                        Eta::Schedule{.steps = options.schedule.steps,
                                                      .eval_every = eval_every,
                                                      .sample_every = run.sample_every,
                                                      .save_every = run.checkpoint_every},
                                        run.verbose);
}

/// What the flags and the environment ask for.
class Attachments final : public RunAttachments {
 public:
  /// `choice`: of a mesh, as a line for the terminal, or empty.
  Attachments(std::string faults, std::string choice, const Trackers& trackers)
      : faults_(std::move(faults)), choice_(std::move(choice)), trackers_(trackers) {}

  void acquire(const TrainOptions& options) override {
    if (options.run.dry_run || launcher_rank() != 0) return;
    for (const std::unique_ptr<Tracker>& tracker : trackers_) tracker->acquire();
  }

  void add_sinks(EventStream& events, const TrainOptions& options, std::int64_t eval_every) override {
    events.add(terminal_sink(options, eval_every));
    if (!choice_.empty()) events.say(choice_);
    for (const std::unique_ptr<Tracker>& tracker : trackers_) tracker->add_sink(events);
  }

  std::unique_ptr<StepObserver> observer(const TrainOptions& options, const Rank& rank,
                                         const DeviceMesh& mesh) override {
    if (faults_.empty()) return nullptr;
    return std::make_unique<fault::Injector>(faults_, options.mesh.processes, rank, mesh);
  }

 private:
  std::string faults_, choice_;
  const Trackers& trackers_;
};

}  // namespace

int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task) {
  catch_signals();
  Flags flags(program, summary);
  flags.example(program + " --data text.txt --steps 1000 --mesh dp=2 --out run1");
  declare_task(flags, task);
  return train_program(argc, argv, flags, task);
}

void declare_task(Flags& flags, Task& task) {
  task.declare_data(flags);
  task.declare_model(flags);
  declare_training(flags, task.options());
}

int train_program(int argc, const char* const* argv, Flags& flags, Task& task) {
  const Trackers trackers = all_trackers();
  declare_trackers(flags, trackers);
  const Flags::Asked asked = flags.parse(argc, argv);
  const auto print = [](const std::string& text) {
    if (launcher_rank() == 0) write_out(text);
    return 0;
  };
  if (asked != Flags::Asked::run && asked != Flags::Asked::print_config) return print(flags.answer(asked));
  TrainOptions& o = task.options();
  const std::string choice = o.mesh.axes == "auto" ? choose_mesh(task, launcher_ranks()) : "";
  resolve(o, launcher_ranks());
  fault::arm_io(o.run.allow_fault_injection);
  const std::string faults = fault::from_environment(o.run.allow_fault_injection);
  task.validate();
  fault::require_possible(faults, o);
  for (const std::unique_ptr<Tracker>& tracker : trackers) tracker->validate(o.run);
  if (asked == Flags::Asked::print_config) return print(flags.config_text(task.config_notes()));
  o.run.config = flags.config_text();
  Attachments attachments(faults, choice, trackers);
  return train(task, attachments);
}

}  // namespace trireme
