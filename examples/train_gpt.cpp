// Trains a GPT on text, on any mesh:
//
//   build/bin/train_gpt --data README.md --layers 2 --heads 2 --width 64 --steps 100 --mesh dp=2 --out run1
//
// Read it from the bottom: main reads the flags, train() loads the text and starts the ranks, and each rank runs
// train_rank(), whose loop is: gradients, sums over the mesh, clip, update, report.
// Read next: train/trainer.h, models/gpt.h.
#include <cmath>

#include "core/parallel_for.h"
#include "data/corpus.h"
#include "data/prefetch.h"
#include "data/utf8.h"
#include "parallel/pipeline/timeline.h"
#include "train/checkpointing.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/program.h"
#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/trainer.h"

using namespace trireme;

namespace {

/// The validation loss when there is a validation part; collective.
std::optional<double> evaluate(const TrainOptions& o, const Corpus& corpus, Gpt& model) {
  if (corpus.validation.count() == 0) return std::nullopt;
  const std::int64_t batch = o.batch_sizes().micro_batch, context = o.model.config.context;
  const EvalWindows windows = o.run.eval_batches
                                  ? EvalWindows::of_batches(corpus.validation, context, *o.run.eval_batches, batch)
                                  : EvalWindows::all(corpus.validation, context);
  return validation_loss(model, windows, batch);
}

/// Weights that give no number are not worth saving. The gradient that made them was finite: only a loss shows it.
void require_finite(double val_loss, std::int64_t step) {
  if (std::isfinite(val_loss)) return;
  fail(ExitCode::numerical, "train",
       "the validation loss after step {} is {}; expected a finite number; nothing was saved; lower --lr or raise "
       "--warmup-steps",
       step, std::isnan(val_loss) ? "nan" : "infinite");
}

/// Text that follows the first token of the data; collective.
std::string sample(const TrainOptions& o, const Corpus& corpus, Gpt& model) {
  std::vector<std::int32_t> first(1);
  corpus.train.read(0, first);
  const auto seed = static_cast<std::uint64_t>(o.run.seed);
  Utf8Stream printable;  // a token may end inside a character
  const std::string text =
      printable.push(corpus.tokenizer->decode(generate(model, first, {.length = o.run.sample_length, .seed = seed})));
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
          .bubble = proof.bubble_of_total,
          .memory = predicted_memory(o, o.model.config, trainer.model().parameters(), proof.peak_live.front())};
}

void train_rank(const TrainOptions& o, const Corpus& corpus, RunFolder& folder, Rank& rank) {
  const auto mesh = std::make_shared<const DeviceMesh>(rank.world, o.mesh.shape);
  rank.where = mesh->where();
  const GptConfig& config = o.model.config;
  const BatchSizes batch = o.batch_sizes();
  const auto seed = static_cast<std::uint64_t>(o.run.seed);
  const std::int64_t tokens_per_step = batch.tokens_per_step(config.context);

  Trainer trainer(o, mesh);
  Gpt& model = trainer.model();
  const optim::LrSchedule lr_schedule = make_lr_schedule(o.schedule);

  Console console(rank.first());
  console.print(start_table(o, start_facts(o, corpus, trainer, rank)));
  console.print(to_string(batch, config.context));
  Progress progress;
  const RunIdentity identity(o.run.seed, corpus.hash, o.data.val_fraction);
  if (rank.first() && !o.run.dry_run) folder.lock();
  const auto tell = [&console](const std::string& line) { console.print(line); };
  const std::optional<Resumed> resumed = resume_run(o, trainer, *corpus.tokenizer, identity, tell);
  if (resumed) progress = resumed->progress;
  if (progress.loss_scale) trainer.scaler().set_state(*progress.loss_scale);
  if (o.run.dry_run) return console.print(pipeline::render(trainer.executor().schedule()));
  if (rank.first()) folder.open(config_text(o), progress.steps);
  std::optional<Checkpointing> checkpoints;
  if (!o.run.out.empty()) checkpoints.emplace(o, trainer, *corpus.tokenizer, identity, resumed, tell);

  const Sampler sampler(corpus.train, config.context, seed);
  const BatchPlan plan = batch.on_rank(mesh->coord(Axis::dp));
  Loader loader(sampler, plan, progress.samples);

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
    rank.step = step;

    // Gradients of this rank's micro-batches; sums over dp start while the last backward still runs.
    const CommunicationTimes before = CommunicationClock::current()->read();
    const double waited = loader.seconds_waited();
    const auto [pass, sums] =
        trainer.gradients([&](int) { return loader.next(); }, 1.0 / static_cast<double>(tokens_per_step));
    times.add(Phase::data, loader.seconds_waited() - waited);
    times.add(Phase::forward, pass.forward_seconds - (loader.seconds_waited() - waited));
    times.add(Phase::backward, pass.backward_seconds);
    times.add(Phase::communication, pass.waiting_seconds + sums.exposed_seconds);

    // Clip by the norm of the whole gradient, and update.
    const double lr = lr_schedule.at(progress.steps);
    const auto [norm, updated] = timed(Phase::optimizer, [&] {
      const double whole = trainer.gradient_norm();
      return std::pair(whole, trainer.update(lr, whole));
    });
    communication = communication + (CommunicationClock::current()->read() - before);
    progress.samples += batch.global_batch;
    if (!updated) {  // f16 overflowed: nothing but the loss scale has changed, and the step is made with other samples
      console.print(skipped_line(step, trainer.scaler()));
      continue;
    }
    progress.steps = step;

    // Report. Everything below but printing is collective: all ranks take the same branches.
    const bool last = step == o.schedule.steps;
    const bool log_now = last || step % o.run.log_every == 0;
    const bool evaluate_now = last || (o.run.eval_every > 0 && step % o.run.eval_every == 0);
    StepRecord record;
    record.step = step;
    record.lr = lr;
    record.grad_norm = norm;
    record.tokens = progress.samples * config.context;
    if (trainer.scaler().active()) {
      record.skipped = trainer.scaler().skipped();
      record.loss_scale = trainer.scaler().scale();
    }
    if (trainer.routing()) record.set_routing(*trainer.routing(), config.experts);
    if (log_now || evaluate_now) {
      record.loss = pipeline::global_loss(*mesh, pass.loss);
      record.set_times(times.lap(step - logged), tokens_per_step);
      record.set_communication(std::exchange(communication, {}), step - logged);
      record.peak_bytes = MemoryPool::current()->on(model.device())->total().peak;
      logged = step;
      console.progress(step_line(record, o.schedule.steps));
    }
    if (evaluate_now) record.val_loss = timed(Phase::evaluation, [&] { return evaluate(o, corpus, model); });
    if (record.val_loss) {
      console.highlight(validation_line(step, o.schedule.steps, *record.val_loss, config.vocab));
      require_finite(*record.val_loss, step);
    }
    if (rank.first() && (log_now || evaluate_now)) folder.log(record);
    if (o.run.sample_every > 0 && (last || step % o.run.sample_every == 0)) {
      console.print(sample_block(step, timed(Phase::sampling, [&] { return sample(o, corpus, model); })));
    }
    if (checkpoints && !last) timed(Phase::saving, [&] { checkpoints->after_step(progress); });
  }

  if (checkpoints) timed(Phase::saving, [&] { checkpoints->finish(progress); });
  console.print(time_table(times, progress.steps - first_step));
}

int train(TrainOptions options) {
  RunFolder folder(options.run.out, options.run.resume);
  const Corpus corpus = load_corpus(options.corpus());
  options.model.config = options.model.with_vocab(corpus.tokenizer->vocab_size());
  options.model.config.document_separator =
      options.data.separator(corpus.tokenizer->end_of_text(), options.model.config.vocab);
  require_memory(options);
  run_ranks(options, [&](Rank& rank) { train_rank(options, corpus, folder, rank); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    const std::optional<TrainOptions> options = read_train_options(argc, argv);
    return options ? train(*options) : 0;
  });
}
