// Read this file from the bottom. train_program() reads the flags. train() loads the data and starts the ranks. Each
// rank makes a RankRun, whose run() is the loop: gradients, sums over the mesh, clip, update, report.
#include "train/loop/training.h"

#include <cmath>
#include <cstdio>

#include "core/cores.h"
#include "core/parallel_for.h"
#include "data/prefetch.h"
#include "parallel/pipeline/drawing.h"
#include "train/faults/injection.h"
#include "train/guards/guards.h"
#include "train/launch/ranks.h"
#include "train/program/console.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/signals.h"
#include "train/report/memory.h"
#include "train/report/memory_limit.h"
#include "train/report/profiling.h"
#include "train/runs/checkpointing.h"
#include "train/runs/resume_mark.h"
#include "train/runs/run_folder.h"
#include "train/step/evaluate.h"
#include "train/step/setup.h"
#include "train/step/trainer.h"

namespace trireme {
namespace {

/// One rank's run. Everything except printing is collective: all ranks take the same branches.
class RankRun {
 public:
  RankRun(const Task& task, RunFolder& folder, Rank& rank)
      : task_(task),
        options_(task.options()),
        folder_(folder),
        rank_(rank),
        mesh_(make_mesh(rank, options_.mesh.shape)),
        trainer_(task.make(options_, mesh_), options_),
        console_(rank.first()),
        batch_(options_.batch_sizes()),
        targets_per_step_(batch_.global_batch * task.targets()),
        identity_(task.identity()) {}

  void run();

 private:
  static std::shared_ptr<const DeviceMesh> make_mesh(Rank& rank, const MeshShape& shape) {
    auto mesh = std::make_shared<const DeviceMesh>(rank.world, shape);
    rank.enter(*mesh);
    return mesh;
  }
  template <class F>
  auto timed(Phase phase, const F& f) {
    const auto scope = times_.time(phase);
    return f();
  }
  std::int64_t count_parameters();  // of the whole model, padding included; collective
  void print_plan();
  void train(const std::optional<Resumed>& resumed);
  Trainer::Pass gradients(Loader& loader);
  std::optional<double> evaluate(std::int64_t step);
  StepRecord record_of(std::int64_t step, double lr, const Guards& guards) const;
  /// After an update: logs, and computes the validation loss and the sample if they are due.
  void report(StepRecord record, Checkpointing& checkpoints);

  const Task& task_;
  const TrainOptions& options_;
  RunFolder& folder_;
  Rank& rank_;
  std::shared_ptr<const DeviceMesh> mesh_;
  Trainer trainer_;
  Console console_;
  BatchSizes batch_;
  std::int64_t targets_per_step_;
  RunIdentity identity_;
  Progress progress_;
  PhaseTimes times_;
  std::int64_t logged_ = 0;           // the step of the last line of output
  CommunicationTimes communication_;  // of the steps since then
};

std::int64_t RankRun::count_parameters() {
  double here = 0;  // of this rank's stages; the result is the same on all ranks of dp and tp
  for (const ParameterPtr& parameter : trainer_.model().parameters())
    if (!parameter->copy_of_earlier_stage) here += static_cast<double>(parameter->global_shape.count());
  const Tensor sum = Tensor::full({1}, here, DType::f64);
  mesh_->group(Axis::pp).all_reduce(sum).wait();
  return static_cast<std::int64_t>(sum.item());
}

void RankRun::print_plan() {
  std::vector<LabelledValue> rows = task_.rows();
  if (task_.parameters().all == 0) rows.emplace_back("parameters", thousands(count_parameters()));
  const pipeline::Proof& proof = trainer_.executor().proof();
  const double activations = task_.activation_bytes(options_, proof.peak_live.front());
  console_.print(start_table(
      options_,
      {.task = std::move(rows),
       .plan = trainer_.model().plan(),
       .gpu_kernels = options_.precision.tensor_device() == Device::cuda ? task_.gpu_kernels() : "",
       .traffic = rank_.traffic,
       .sums = mesh_->world().fastest_order(),
       .threads = threads(),
       .own_cores = OwnCores::current().parts > 0,
       .bubble = proof.bubble_of_total,
       .memory = predicted_memory(options_, trainer_.model().parameters(), activations, task_.workspace_bytes())}));
  const Task::Words words = task_.words();
  console_.print(
      fmt::format("{} {}, {} {} per step", to_string(batch_), words.samples, targets_per_step_, words.targets));
}

std::optional<double> RankRun::evaluate(std::int64_t step) {
  const std::shared_ptr<const ValidationSource> samples = task_.validation();
  if (samples == nullptr) return std::nullopt;
  const double loss = timed(Phase::evaluation, [&] {
    return validation_loss(trainer_.model(), *samples, options_.batch_sizes().micro_batch);
  });
  console_.highlight(validation_line(step, options_.schedule.steps, loss, task_.explain_loss(step, loss)));
  return loss;
}

Trainer::Pass RankRun::gradients(Loader& loader) {
  // Sums of gradients over data start during the last backward, with ZeRO 2 and 3 during each.
  const double waited = loader.seconds_waited();
  const Trainer::Pass made =
      trainer_.gradients([&](int) { return loader.next(); }, 1.0 / static_cast<double>(targets_per_step_));
  const double waiting = loader.seconds_waited() - waited;
  times_.add(Phase::data, waiting);
  times_.add(Phase::forward, made.pipeline.forward_seconds - waiting);
  times_.add(Phase::backward, made.pipeline.backward_seconds);
  times_.add(Phase::communication, made.pipeline.waiting_seconds + made.sums.exposed_seconds);
  return made;
}

StepRecord RankRun::record_of(std::int64_t step, double lr, const Guards& guards) const {
  StepRecord record;
  record.step = step;
  record.lr = lr;
  record.grad_norm = guards.norm();
  record.loss = guards.loss();
  record.tokens = progress_.samples * task_.targets();
  return record;
}

void RankRun::report(StepRecord record, Checkpointing& checkpoints) {
  const std::int64_t step = record.step;
  const RunOptions& o = options_.run;
  const bool last = step == options_.schedule.steps;
  const bool log_now = last || step % o.log_every == 0;
  const bool evaluate_now = last || (o.eval_every > 0 && step % o.eval_every == 0);
  if (trainer_.scaler().active()) {
    record.skipped = trainer_.scaler().skipped();
    record.loss_scale = trainer_.scaler().scale();
  }
  if (trainer_.routing()) record.set_routing(*trainer_.routing(), task_.experts());
  if (log_now || evaluate_now) {
    record.set_times(times_.lap(step - logged_), targets_per_step_);
    record.set_communication(std::exchange(communication_, {}), step - logged_);
    record.peak_bytes = MemoryPool::current()->on(trainer_.model().device())->total().peak;
    logged_ = step;
    console_.progress(step_line(record, options_.schedule.steps, task_.words().per_second));
  }
  if (evaluate_now) record.val_loss = evaluate(step);
  if (record.val_loss) {  // if it is bad, a save under way, which is good, is completed before the error ends the run
    if (!std::isfinite(*record.val_loss)) checkpoints.complete();
    require_finite(*record.val_loss, step);
  }
  if (rank_.first() && (log_now || evaluate_now)) folder_.log(record);
  if (o.sample_every > 0 && (last || step % o.sample_every == 0))
    console_.print(sample_block(step, timed(Phase::sampling, [&] { return task_.sample(trainer_.model()); })));
}

void RankRun::train(const std::optional<Resumed>& resumed) {
  const auto tell = [this](const std::string& line) { console_.print(line); };
  Checkpointing checkpoints(options_, trainer_, identity_, resumed, tell);
  checkpoints.note_loss(rank_.lost);
  ResumeMark mark(options_, resumed, rank_, tell);
  Guards guards(options_, trainer_, &checkpoints, progress_, tell, [&](std::int64_t steps) {
    if (rank_.first()) folder_.rewind(steps);
  });
  Loader loader(task_.training(), batch_.on_rank(mesh_->coord(Axis::dp)), progress_.samples);
  Profiling profiling(options_, *mesh_);
  const optim::LrSchedule lr_schedule = make_lr_schedule(options_.schedule);
  evaluate(progress_.steps);

  // Without --out nothing is saved: then the ranks only agree on signals.
  const Phase after_step = options_.run.out.empty() ? Phase::communication : Phase::saving;
  const std::int64_t first_step = progress_.steps;
  logged_ = first_step;
  while (progress_.steps < options_.schedule.steps) {
    const std::int64_t step = progress_.steps + 1;
    profiling.before_step(progress_.steps - first_step);
    rank_.begin_step(step);
    mark.begin_step();
    const CommunicationTimes before = CommunicationClock::current()->read();
    const Trainer::Pass made = gradients(loader);
    // Clips by the norm of the whole gradient and updates the weights; skips the update if a check fails.
    const double lr = lr_schedule.at(progress_.steps);
    const bool updated = timed(Phase::optimizer, [&] { return guards.step(made, lr); });
    profiling.after_step();
    communication_ = communication_ + (CommunicationClock::current()->read() - before);
    if (!updated) {  // goes on at this step with other samples, or after a rollback at an earlier step
      logged_ = std::min(logged_, progress_.steps);
      continue;
    }
    mark.step_made();
    report(record_of(step, lr, guards), checkpoints);
    const bool last = step == options_.schedule.steps;
    if (!last && !timed(after_step, [&] { return checkpoints.after_step(progress_); })) break;  // a signal
  }

  timed(after_step, [&] { checkpoints.finish(progress_); });
  if (const auto table = profiling.finish()) console_.print(*table);
  console_.print(time_table(times_, progress_.steps - first_step));
  rank_.exit_code = checkpoints.exit_code();
}

void RankRun::run() {
  print_plan();
  if (rank_.first() && !options_.run.dry_run) folder_.lock();
  const std::optional<Resumed> resumed =
      resume_run(options_, trainer_, identity_, [this](const std::string& line) { console_.print(line); });
  if (resumed) progress_ = resumed->progress;
  if (progress_.loss_scale) trainer_.scaler().set_state(*progress_.loss_scale);
  if (options_.run.dry_run) return console_.print(pipeline::render(trainer_.executor().schedule()));
  if (progress_.steps >= options_.schedule.steps) return;  // resume_run() has said so
  note_training_begins();
  if (rank_.first()) {
    if (const std::string said = folder_.open(options_.run.config, progress_.steps); !said.empty())
      console_.print(said);
  }
  train(resumed);
}

}  // namespace

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
  const TrainOptions& o = task.options();
  if (!o.run.dry_run) catch_broken_pipes();
  std::optional<RunFolder> folder;
  try {
    folder.emplace(o.run.out, o.run.resume);
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
      o, [&](Rank& rank) { RankRun(task, *folder, rank).run(); }, task.common(), memory);
}

int train_program(int argc, const char* const* argv, const std::string& program, const std::string& summary,
                  Task& task) {
  catch_signals();
  Flags flags(program, summary);
  flags.example(program + " --data text.txt --steps 1000 --mesh dp=2 --out run1");
  declare_task(flags, task);
  return read_task_flags(argc, argv, flags, task) ? train(task) : 0;
}

}  // namespace trireme
