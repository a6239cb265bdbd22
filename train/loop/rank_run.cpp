// run() is what a rank does; train() is the loop over steps. The functions below them are in the order of their use.
#include "train/loop/rank_run.h"

#include <algorithm>
#include <cmath>

#include "core/cores.h"
#include "core/parallel_for.h"
#include "parallel/comm/texts.h"
#include "parallel/pipeline/drawing.h"
#include "train/program/signals.h"
#include "train/report/profiling.h"
#include "train/runs/metrics_sink.h"
#include "train/runs/new_folder.h"
#include "train/runs/resume_mark.h"
#include "train/runs/saved_run.h"
#include "train/step/evaluate.h"
#include "train/step/non_finite.h"
#include "train/step/setup.h"

namespace trireme {

namespace {

/// The checkpoint that the run is to resume from, as the first rank sees it; empty: it begins.
std::string agreed_checkpoint(ProcessGroup& world, const RunOptions& o) {
  std::string path;
  fail_together(world, [&] {
    if (world.rank() == 0) path = resumed_checkpoint(o.resume, o.out).value_or("").string();
  });
  return broadcast_text(world, path);
}

/// `workspace`: bytes that libraries allocate besides tensors.
std::string memory_text(const PredictedMemory& memory, double workspace) {
  if (!memory.rank) return "not known, as the model fails in a dry run: " + memory.why;
  return to_string(*memory.rank) +
         (workspace > 0 ? fmt::format(", and {} workspace of cuDNN", format_bytes(workspace)) : "");
}

}  // namespace

RankRun::RankRun(Task& task, RunFolder& folder, RunAttachments& attachments, Rank& rank, const PredictedMemory& memory)
    : task_(task),
      options_(task.options()),
      folder_(folder),
      rank_(rank),
      memory_(memory),
      mesh_(make_mesh(rank, options_.mesh.shape)),
      checkpoint_(agreed_checkpoint(*rank.world, options_.run)),
      trainer_(make_model(), options_),
      observer_(attachments.observer(options_, rank, *mesh_)),
      batch_(options_.batch_sizes()),
      targets_per_step_(batch_.global_batch * task.targets()),
      identity_(task.identity()) {
  if (observer_) trainer_.observe(*observer_);
  if (const auto samples = task.validation())
    eval_every_ = options_.run.eval_every.value_or(
        evaluation_interval(options_.schedule.steps, samples->count(), batch_.global_batch));
  if (!rank.first()) return;
  attachments.add_sinks(events_, options_, eval_every_);
  events_.add(std::make_unique<MetricsSink>(folder));
}

void RankRun::run() {
  const RunPlanned planned = plan();
  // Without steps to make, people need no plan unless they ask for one. Programs get it in any case.
  if (options_.run.json || options_.run.dry_run || !folder_.has_made(options_.schedule.steps)) events_.emit(planned);
  // A folder that the program chooses is not there yet: if it is, another run has just made it, and must get its lock.
  if (rank_.first() && !options_.run.dry_run && !options_.run.chooses_folder()) folder_.lock();
  const std::optional<Resumed> resumed = resume();
  if (options_.run.dry_run) return events_.say(pipeline::render(trainer_.executor().schedule()));
  if (progress_.steps >= options_.schedule.steps) return;  // resume() has said so
  note_training_begins();
  begin();
  train(resumed);
}

void RankRun::train(const std::optional<Resumed>& resumed) {
  Checkpointing checkpoints(options_, trainer_, identity_, resumed, events_);
  checkpoints.report_unfinished_save(rank_.unfinished_save);
  if (task_.exports())
    checkpoints.export_with(
        [&](const std::filesystem::path& path) { return task_.export_model(trainer_.model(), path); });
  ResumeMark mark(options_, resumed, rank_, events_);
  Guards guards(options_, trainer_, &checkpoints, progress_, events_);
  source_ = task_.training();
  Loader loader(source_, batch_.on_rank(mesh_->coord(Axis::dp)), progress_.samples);
  Profiling profiling(options_, *mesh_);
  const optim::LrSchedule lr_schedule = make_lr_schedule(options_.schedule);
  if (const std::optional<double> loss = evaluate()) checkpoints.note_validation_at_start(progress_.steps, *loss);

  const std::int64_t first_step = logged_ = progress_.steps, steps = options_.schedule.steps;
  profiling.describe(trainer_.model().parameters(), first_step);
  stepping_ = times_.seconds_in_steps();
  while (progress_.steps < steps) {
    profiling.before_step(progress_.steps - first_step);
    rank_.begin_step(progress_.steps + 1);
    mark.begin_step();
    const CommunicationTimes before = CommunicationClock::current()->read();
    const Trainer::GradientReport report = gradients(loader);
    // Clips by the norm of the whole gradient and updates the weights; skips the update if a check fails.
    const double lr = lr_schedule.at(progress_.steps);
    const bool updated = timed(Phase::optimizer, [&] { return guards.checked_update(report, lr); });
    profiling.after_step();
    communication_ = communication_ + (CommunicationClock::current()->read() - before);
    if (!updated) {  // goes on at this step with other samples, or after a rollback at an earlier step
      logged_ = std::min(logged_, progress_.steps);
      continue;
    }
    mark.step_made();
    report_step(lr, guards, checkpoints);
    const bool last = progress_.steps == steps;
    if ((!last || cut_short_) && !timed(Phase::saving, [&] { return checkpoints.after_step(progress_); }))
      break;  // a signal
  }

  timed(Phase::saving, [&] { checkpoints.finish(progress_); });
  if (const auto table = profiling.finish()) events_.say(*table);
  events_.emit(RunEnded{.steps = progress_.steps - first_step,
                        .wall_seconds = times_.seconds(),
                        .phases = times_.totals(),
                        .last_step = progress_.steps == steps,
                        .memory = memory_rows()});
  rank_.exit_code = checkpoints.exit_code();
}

// ---- before the first step ------------------------------------------------------------------------------------------

std::shared_ptr<const DeviceMesh> RankRun::make_mesh(Rank& rank, const MeshShape& shape) {
  auto mesh = std::make_shared<const DeviceMesh>(rank.world, shape);
  rank.enter(*mesh);
  return mesh;
}

/// Without random weights if those of a checkpoint follow, or none are needed: to draw them takes longer than to load
/// them.
std::unique_ptr<Model> RankRun::make_model() const {
  TrainOptions options = options_;
  options.run.loads_weights = !checkpoint_.empty() || options.run.dry_run;
  return task_.make(options, mesh_);
}

RunPlanned RankRun::plan() {
  std::vector<LabelledValue> rows = task_.rows();
  if (std::none_of(rows.begin(), rows.end(), [](const LabelledValue& row) { return row.first == "parameters"; }))
    rows.emplace_back("parameters", thousands(count_parameters()));
  const Task::UnitNames units = task_.unit_names();
  return plan_of_run(options_,
                     {.task = std::move(rows),
                      .batch = fmt::format("{} {}, {} {} per step", to_string(batch_), units.samples, targets_per_step_,
                                           units.targets),
                      .plan = trainer_.model().plan(),
                      .gpu_kernels = options_.precision.tensor_device() == Device::cuda ? task_.gpu_kernels() : "",
                      .traffic = rank_.traffic,
                      .sums = mesh_->world().fastest_order(),
                      .threads = threads(),
                      .own_cores = OwnCores::current().parts > 0,
                      .bubble = trainer_.executor().costs().bubble_of_total,
                      .memory = memory_text(memory_, task_.workspace_bytes()),
                      .eval_every = eval_every_});
}

std::vector<MemoryRow> RankRun::memory_rows() {
  std::vector<MemoryRow> rows;
  if (!memory_.rank) return rows;
  const RankMemory measured = memory_used(trainer_.model().device());
  for (std::size_t i = 0; i < measured.peaks.size(); ++i)
    if (measured.peaks[i] > 0 || memory_.rank->peaks[i] > 0)
      rows.push_back({std::string(name(static_cast<MemoryCategory>(i))), memory_.rank->peaks[i], measured.peaks[i]});
  rows.push_back({"at once", memory_.rank->peak, measured.peak});
  return rows;
}

std::int64_t RankRun::count_parameters() {
  double here = 0;  // of this rank's stages; the result is the same on all ranks of dp and tp
  for (const ParameterPtr& parameter : trainer_.model().parameters())
    if (!parameter->copy_of_earlier_stage) here += static_cast<double>(parameter->global_shape.count());
  const Tensor sum = Tensor::full({1}, here, DType::f64);
  mesh_->group(Axis::pp).all_reduce(sum).wait();
  return static_cast<std::int64_t>(sum.item());
}

std::optional<Resumed> RankRun::resume() {
  std::optional<Resumed> resumed = resume_run(options_, trainer_, identity_, events_);
  if (resumed) progress_ = resumed->progress;
  // Without it the model of make_model() has no weights.
  if (const std::string needed = checkpoint_.empty() ? task_.needed_checkpoint() : checkpoint_;
      !resumed && !needed.empty())
    fail(ExitCode::io, "resume",
         "{} is gone since the program began; expected it, or another checkpoint; start again, or change --resume",
         needed);
  if (progress_.loss_scale) trainer_.scaler().set_state(*progress_.loss_scale);
  return resumed;
}

void RankRun::begin() {
  if (options_.run.chooses_folder()) {
    const std::string planned = options_.run.out;
    create_run_folder(*rank_.world, task_.options().run, task_.name(), options_.mesh.processes);
    if (rank_.first()) folder_.move_to(options_.run.out);
    if (options_.run.out != planned)
      events_.say(fmt::format("{} is another run's by now; this run is kept in {}", planned, options_.run.out));
  }
  rank_.folder->set(options_.run.out);
  if (rank_.first()) {
    if (const std::string said = folder_.open(options_.run.config, progress_.steps, identity_.files); !said.empty())
      events_.say(said);
  }
  events_.emit(RunBegan{.first_step = progress_.steps,
                        .steps = options_.schedule.steps,
                        .rate_unit = task_.unit_names().per_second,
                        .out = options_.run.out,
                        .config = options_.run.config,
                        .use = options_.run.out.empty() ? "" : task_.use_command(options_.run.out)});
}

// ---- a step ---------------------------------------------------------------------------------------------------------

Trainer::GradientReport RankRun::gradients(Loader& loader) {
  // Sums of gradients over data start during the last backward, with ZeRO 2 and 3 during each.
  const std::int64_t targets = source_->targets_of(loader.consumed(), batch_.global_batch).value_or(targets_per_step_);
  const Trainer::GradientReport report = trainer_.gradients(
      [&](int) { return loader.next(); }, 1.0 / static_cast<double>(std::max<std::int64_t>(1, targets)));
  times_.add(Phase::data, report.fetch_seconds);
  times_.add(Phase::forward, report.pipeline.forward_seconds);
  times_.add(Phase::backward, report.pipeline.backward_seconds);
  times_.add(Phase::communication, report.pipeline.waiting_seconds + report.sums.exposed_seconds);
  return report;
}

/// After an update: logs the step, and computes the validation loss and the sample if they are due.
void RankRun::report_step(double lr, const Guards& guards, Checkpointing& checkpoints) {
  const std::int64_t step = progress_.steps;
  const bool last = step == options_.schedule.steps;
  const auto due = [&](std::int64_t every) { return last || (every > 0 && step % every == 0); };
  const double stepping = times_.seconds_in_steps();
  events_.emit(StepMade{.step = step, .seconds = stepping - std::exchange(stepping_, stepping)});

  const bool evaluated = due(eval_every_) && task_.validation() != nullptr;
  if (due(options_.run.log_every) || due(eval_every_)) log(lr, guards, evaluated);
  if (evaluated) {  // if the loss is bad, a save under way, which is good, is completed before the error ends the run
    const std::optional<double> loss = evaluate();
    if (!loss) return;  // a signal
    if (!std::isfinite(*loss)) checkpoints.complete();
    require_finite(*loss, step, steadier(options_));
    checkpoints.note_validation(step, *loss);
  }
  if (options_.run.sample_every > 0 && due(options_.run.sample_every)) sample();
}

void RankRun::log(double lr, const Guards& guards, bool evaluated) {
  StepRecord record;
  record.step = progress_.steps;
  record.lr = lr;
  record.grad_norm = guards.norm();
  record.loss = guards.loss();
  record.tokens = progress_.samples * task_.targets();
  record.epochs = task_.epochs(progress_.samples);
  if (trainer_.scaler().active()) {
    record.skipped = trainer_.scaler().skipped();
    record.loss_scale = trainer_.scaler().scale();
  }
  if (trainer_.routing()) record.set_routing(*trainer_.routing(), task_.experts());
  const std::int64_t since = record.step - std::exchange(logged_, record.step);
  record.set_times(times_.lap(since), targets_per_step_);
  record.set_communication(std::exchange(communication_, {}), since);
  record.peak_bytes = MemoryPool::current()->on(trainer_.model().device())->total().peak;
  events_.emit(StepLogged{.record = record, .evaluated = evaluated});
}

/// f(), with the weights of which validation losses and samples are: with --eval-ema the average.
template <class F>
auto RankRun::with_shown_weights(const F& f) {
  if (!options_.optimizer.eval_ema) return f();
  trainer_.optimizer().swap_average();
  auto result = f();
  trainer_.optimizer().swap_average();
  return result;
}

std::optional<double> RankRun::evaluate() {
  const std::shared_ptr<const ValidationSource> samples = task_.validation();
  if (samples == nullptr) return std::nullopt;
  const double begin = times_.seconds();
  const std::optional<double> loss = timed(Phase::evaluation, [&] {
    return with_shown_weights([&] {
      return validation_loss_unless(leave_asked, trainer_.model(), *samples, options_.batch_sizes().micro_batch,
                                    [this](std::int64_t done, std::int64_t all) {
                                      events_.emit(Activity{.name = "evaluating", .done = done, .total = all});
                                    });
    });
  });
  cut_short_ = !loss;
  if (cut_short_) {
    events_.say(fmt::format("the evaluation after step {} was cut short: told to leave", progress_.steps));
    return std::nullopt;
  }
  events_.emit(Validated{.step = progress_.steps,
                         .loss = *loss,
                         .meaning = task_.explain_loss(progress_.steps, *loss),
                         .seconds = times_.seconds() - begin});
  return loss;
}

void RankRun::sample() {
  const double begin = times_.seconds();
  events_.emit(Activity{.name = "sampling"});
  std::string text =
      timed(Phase::sampling, [&] { return with_shown_weights([&] { return task_.sample(trainer_.model()); }); });
  events_.emit(Sampled{.step = progress_.steps, .text = std::move(text), .seconds = times_.seconds() - begin});
}

}  // namespace trireme
