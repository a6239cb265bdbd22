// Trains a GPT on text, on any mesh:
//
//   build/bin/train_gpt --data README.md --layers 2 --heads 2 --width 64 --steps 100 --mesh dp=2 --out run1
//
// Read it from the bottom: main reads the flags, train() loads the text and starts the ranks, and each rank runs
// train_rank(), whose loop is: gradients, sums over the mesh, clip, update, report.
// Read next: train/trainer.h, models/model.h, models/gpt.h.
#include <cmath>

#include "core/cores.h"
#include "core/parallel_for.h"
#include "data/corpus.h"
#include "data/eval_windows.h"
#include "data/prefetch.h"
#include "data/utf8.h"
#include "parallel/pipeline/timeline.h"
#include "train/checkpointing.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/gpt_setup.h"
#include "train/guards.h"
#include "train/profiling.h"
#include "train/program.h"
#include "train/ranks.h"
#include "train/report.h"
#include "train/resume_mark.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/signals.h"
#include "train/trainer.h"

using namespace trireme;

namespace {

/// The validation loss when there is a validation part; collective.
std::optional<double> evaluate(const TrainOptions& o, const Corpus& corpus, Model& model) {
  if (corpus.validation.count() == 0) return std::nullopt;
  const EvalWindows windows = EvalWindows::of_batches(corpus.validation, o.model.config.context, o.run.eval_batches);
  return validation_loss(model, windows, o.batch_sizes().micro_batch);
}

/// Text that follows the first token of the data; collective.
std::string sample(const TrainOptions& o, const Corpus& corpus, Gpt& model) {
  std::vector<std::int32_t> first(1);
  corpus.train.read(0, first);
  const GenerateOptions options = {.length = o.run.sample_length,
                                   .seed = static_cast<std::uint64_t>(o.run.seed),
                                   .tokens = corpus.tokenizer->vocab_size()};
  Utf8Stream printable;  // a token may end inside a character
  const std::string text = printable.push(corpus.tokenizer->decode(generate(model, first, options)));
  return text + printable.finish();
}

StartFacts start_facts(const TrainOptions& o, const Corpus& corpus, Trainer& trainer, const Rank& rank) {
  const pipeline::Proof& proof = trainer.executor().proof();
  return {.parameters = parameter_count(o.model.config),
          .active_parameters = active_parameter_count(o.model.config),
          .vocab = o.model.config.vocab,
          .padded_vocab = nn::padded_vocab(o.model.config.vocab, o.mesh.shape.size(Axis::tp)),
          .train_tokens = corpus.train.count(),
          .val_tokens = corpus.validation.count(),
          .traffic = rank.traffic,
          .threads = threads(),
          .own_cores = OwnCores::current().parts > 0,
          .bubble = proof.bubble_of_total,
          .memory = predicted_memory(o, o.model.config, trainer.model().parameters(), proof.peak_live.front())};
}

RunIdentity identity_of(const TrainOptions& o, const Corpus& corpus) {
  return {.seed = o.run.seed,
          .tokenizer = corpus.tokenizer->to_json(),
          .data = corpus.hash,
          .val_fraction = o.data.val_fraction};
}

void train_rank(const TrainOptions& o, const Corpus& corpus, RunFolder& folder, Rank& rank) {
  const auto mesh = std::make_shared<const DeviceMesh>(rank.world, o.mesh.shape);
  rank.enter(*mesh);
  const GptConfig& config = o.model.config;
  const BatchSizes batch = o.batch_sizes();
  const auto seed = static_cast<std::uint64_t>(o.run.seed);
  const std::int64_t tokens_per_step = batch.tokens_per_step(config.context);

  std::unique_ptr<Gpt> gpt = make_gpt(o, mesh);
  Gpt& model = *gpt;
  Trainer trainer(std::move(gpt), o);
  const optim::LrSchedule lr_schedule = make_lr_schedule(o.schedule);

  Console console(rank.first());
  console.print(start_table(o, start_facts(o, corpus, trainer, rank)));
  console.print(to_string(batch, config.context));
  Progress progress;
  const RunIdentity identity = identity_of(o, corpus);
  if (rank.first() && !o.run.dry_run) folder.lock();
  const auto tell = [&console](const std::string& line) { console.print(line); };
  const std::optional<Resumed> resumed = resume_run(o, trainer, identity, tell);
  if (resumed) progress = resumed->progress;
  if (progress.loss_scale) trainer.scaler().set_state(*progress.loss_scale);
  if (o.run.dry_run) return console.print(pipeline::render(trainer.executor().schedule()));
  if (progress.steps >= o.schedule.steps) return;  // resume_run() has said so
  if (rank.first()) {
    if (const std::string said = folder.open(config_text(o), progress.steps); !said.empty()) console.print(said);
  }
  Checkpointing checkpoints(o, trainer, identity, resumed, tell);
  checkpoints.note_loss(rank.lost);
  ResumeMark mark(o, resumed, rank, tell);
  Guards guards(o, trainer, &checkpoints, progress, tell, [&](std::int64_t steps) {
    if (rank.first()) folder.rewind(steps);
  });

  const auto sampler = std::make_shared<Sampler>(corpus.train, config.context, seed);
  const BatchPlan plan = batch.on_rank(mesh->coord(Axis::dp));
  Loader loader(sampler, plan, progress.samples);

  Profiling profiling(o, *mesh);
  PhaseTimes times;
  const auto timed = [&times](Phase phase, const auto& f) {
    const auto scope = times.time(phase);
    return f();
  };
  if (const auto loss = timed(Phase::evaluation, [&] { return evaluate(o, corpus, model); })) {
    console.highlight(validation_line(progress.steps, o.schedule.steps, *loss, config.vocab));
  }

  const std::int64_t first_step = progress.steps;
  std::int64_t logged = first_step;
  CommunicationTimes communication;  // of the steps since the line before
  while (progress.steps < o.schedule.steps) {
    const std::int64_t step = progress.steps + 1;
    profiling.before_step(progress.steps - first_step);
    rank.begin_step(step);
    mark.begin_step();

    // Gradients of this rank's micro-batches; sums over dp start while the last backward still runs.
    const CommunicationTimes before = CommunicationClock::current()->read();
    const double waited = loader.seconds_waited();
    const Trainer::Pass made =
        trainer.gradients([&](int) { return loader.next(); }, 1.0 / static_cast<double>(tokens_per_step));
    times.add(Phase::data, loader.seconds_waited() - waited);
    const pipeline::StepReport& pass = made.pipeline;
    times.add(Phase::forward, pass.forward_seconds - (loader.seconds_waited() - waited));
    times.add(Phase::backward, pass.backward_seconds);
    times.add(Phase::communication, pass.waiting_seconds + made.sums.exposed_seconds);

    // Clip by the norm of the whole gradient, and update; or, when something is wrong with it, do not.
    const double lr = lr_schedule.at(progress.steps);
    const bool updated = timed(Phase::optimizer, [&] { return guards.step(made, lr); });
    profiling.after_step();
    communication = communication + (CommunicationClock::current()->read() - before);
    if (!updated) {  // the step is made with other samples, or after a rollback an earlier one
      logged = std::min(logged, progress.steps);
      continue;
    }
    mark.step_made();

    // Report. Everything below but printing is collective: all ranks take the same branches.
    const bool last = step == o.schedule.steps;
    const bool log_now = last || step % o.run.log_every == 0;
    const bool evaluate_now = last || (o.run.eval_every > 0 && step % o.run.eval_every == 0);
    StepRecord record;
    record.step = step;
    record.lr = lr;
    record.grad_norm = guards.norm();
    record.loss = guards.loss();
    record.tokens = progress.samples * config.context;
    if (trainer.scaler().active()) {
      record.skipped = trainer.scaler().skipped();
      record.loss_scale = trainer.scaler().scale();
    }
    if (trainer.routing()) record.set_routing(*trainer.routing(), config.experts);
    if (log_now || evaluate_now) {
      record.set_times(times.lap(step - logged), tokens_per_step);
      record.set_communication(std::exchange(communication, {}), step - logged);
      record.peak_bytes = MemoryPool::current()->on(model.device())->total().peak;
      logged = step;
      console.progress(step_line(record, o.schedule.steps));
    }
    if (evaluate_now) record.val_loss = timed(Phase::evaluation, [&] { return evaluate(o, corpus, model); });
    if (record.val_loss) {
      console.highlight(validation_line(step, o.schedule.steps, *record.val_loss, config.vocab));
      if (!std::isfinite(*record.val_loss)) checkpoints.complete();
      require_finite(*record.val_loss, step);
    }
    if (rank.first() && (log_now || evaluate_now)) folder.log(record);
    if (o.run.sample_every > 0 && (last || step % o.run.sample_every == 0)) {
      console.print(sample_block(step, timed(Phase::sampling, [&] { return sample(o, corpus, model); })));
    }
    if (!last && !timed(Phase::saving, [&] { return checkpoints.after_step(progress); })) break;  // a signal
  }

  timed(Phase::saving, [&] { checkpoints.finish(progress); });
  if (const auto table = profiling.finish()) console.print(*table);
  console.print(time_table(times, progress.steps - first_step));
  rank.exit_code = checkpoints.exit_code();
}

int train(TrainOptions options) {
  if (!options.run.dry_run) catch_signals();
  std::optional<RunFolder> folder;
  try {
    folder.emplace(options.run.out, options.run.resume);
  } catch (const Error&) {
    if (!options.mesh.processes) throw;
    // Where other processes were given another --resume or --out, that is what to report.
    const std::exception_ptr refused = std::current_exception();
    return run_ranks(options, [&](Rank&) { std::rethrow_exception(refused); });
  }
  const Corpus corpus = load_corpus(options.corpus());
  options.model.config = options.model.with_vocab(corpus.tokenizer->vocab_size());
  options.model.config.document_separator =
      options.data.separator(corpus.tokenizer->end_of_text(), options.model.config.vocab);
  require_memory(options);
  return run_ranks(
      options, [&](Rank& rank) { train_rank(options, corpus, *folder, rank); }, common_corpus(corpus));
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    const std::optional<TrainOptions> options = read_train_options(argc, argv);
    return options ? train(*options) : 0;
  });
}
