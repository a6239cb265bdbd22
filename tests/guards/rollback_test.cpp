// After a loss spike the run goes back to a checkpoint and continues with later samples. It has the same bits as a run
// that never saw the samples in between.
#include <doctest/doctest.h>

#include <optional>

#include "tests/guards/support.h"
#include "tests/support/errors.h"
#include "tests/support/events.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace rollback_test {
namespace {

constexpr std::int64_t batch = 12, every = 4;

struct SpikyOptions : GptOptions {
  std::string faults;
};

SpikyOptions spiky_options(const Case& c, const TempFolder& folder, const std::string& faults) {
  SpikyOptions o{guarded_options(c), faults};
  o.run.out = folder.path();
  o.run.checkpoint_every = every;
  o.guards.spike_threshold = 100;
  o.guards.spike_window = 5;
  return o;
}

struct Outcome {
  std::map<int, std::vector<Tensor>> bits;  // by rank
  Progress progress;
  std::string lines, error;
};

/// Trains up to step `last`, from a checkpoint if the options resume. `passed_over` maps a step to the number of
/// batches whose samples are left out before it.
Outcome run(const SpikyOptions& options, std::int64_t last, std::map<std::int64_t, std::int64_t> passed_over = {}) {
  Outcome outcome;
  std::mutex mutex;
  outcome.error = failure([&] {
    SpikyOptions o = options;
    resolve(o, 0);
    validate(o);
    set_threads(1);
    run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                     [&](const std::shared_ptr<ProcessGroup>& world) {
                       Rank rank{.world = world, .where = "a rank", .step = -1};
                       const auto mesh = std::make_shared<const DeviceMesh>(world, o.mesh.shape);
                       Trainer trainer(make_gpt(o, o.model.config, mesh), o);
                       std::optional<fault::Injector> injector;
                       if (!o.faults.empty()) trainer.observe(injector.emplace(o.faults, false, rank, *mesh));
                       const RunIdentity identity{.seed = o.run.seed};
                       std::string lines;
                       Messages events([&](const std::string& line) { lines += line + "\n"; });
                       const std::optional<Resumed> resumed = resume_run(o, trainer, identity, events);
                       Progress progress = resumed ? resumed->progress : Progress{};
                       Checkpointing checkpoints(o, trainer, identity, resumed, events);
                       Guards guards(o, trainer, &checkpoints, progress, events);
                       std::map<std::int64_t, std::int64_t> left_out = passed_over;
                       make_steps(
                           guards, trainer, o, progress, last,
                           [&](std::int64_t step) {
                             rank.step = step;
                             progress.samples += batch * std::exchange(left_out[step], 0);
                           },
                           [&](bool updated) {
                             if (updated) static_cast<void>(checkpoints.after_step(progress));  // no signal comes
                           });
                       if (last % every == 0) checkpoints.finish(progress);  // waits; this step is saved already
                       const std::scoped_lock lock(mutex);
                       outcome.bits[world->rank()] = bits_of(trainer);
                       if (world->rank() == 0) {
                         outcome.progress = progress;
                         outcome.lines = lines;
                       }
                     });
  });
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b, const Case& c) {
  CHECK(a.error == "nothing");
  CHECK(b.error == "nothing");
  CHECK(a.progress.steps == b.progress.steps);
  CHECK(a.progress.samples == b.progress.samples);
  CHECK(a.progress.guards.losses == b.progress.guards.losses);
  REQUIRE(a.bits.size() == b.bits.size());
  for (const auto& [rank, bits] : a.bits)
    CHECK_MESSAGE(same_bits(bits, b.bits.at(rank)), c.mesh, " zero ", c.zero, " rank ", rank);
}

}  // namespace

TEST_CASE("a spike sends the run back to the newest checkpoint, and on with the samples after it") {
  for (const Case& c : {Case{"dp=1"}, Case{"dp=2,tp=2"}, Case{"pp=2"}, Case{"dp=2", 1}, Case{"dp=2,pp=2", 3}}) {
    const TempFolder folder;
    const Outcome spiky = run(spiky_options(c, folder, "spike@step=7"), 10);
    INFO(spiky.lines);
    // Step 7 has the seventh batch. The run goes back to step 4, and skips the samples of batches 5 to 7.
    CHECK(contains(spiky.lines, "back to step 4, on with the samples after 48 to 83 (1 of 2 rollbacks)"));
    CHECK(spiky.progress.guards.rollbacks == 1);
    CHECK(spiky.progress.guards.skipped == std::vector<SkippedSamples>{{.first = 48, .last = 83, .step = 5}});
    const TempFolder other;
    check_same(spiky, run(spiky_options(c, other, ""), 10, {{5, 3}}), c);
  }
}

TEST_CASE("a run that is stopped near a rollback and resumed equals one that is not stopped") {
  for (const Case& c : {Case{"dp=2,tp=2"}, Case{"dp=2", 2}}) {
    for (const std::int64_t stop : {5, 12}) {  // before and after the checkpoint that records the rollback
      const TempFolder folder;
      const SpikyOptions o = spiky_options(c, folder, "spike@step=7;spike@step=14");
      const Outcome straight = run(o, 15);
      CHECK(straight.progress.guards.rollbacks == 2);
      std::filesystem::remove_all(folder / "checkpoints");
      // A run that stops at step 5 stops before the spike at step 7, so the resumed run meets the spike.
      CHECK(run(o, stop).error == "nothing");
      SpikyOptions resumed = o;
      resumed.run.resume = "auto";
      if (stop == 12) resumed.faults = "spike@step=14";
      const Outcome rest = run(resumed, 15);
      INFO(rest.lines);
      check_same(straight, rest, c);
      CHECK(rest.progress.guards == straight.progress.guards);
    }
  }
}

TEST_CASE("a resumed run can roll back to the checkpoint it began with, however --resume and --out are written") {
  const TempFolder folder;
  SpikyOptions o = spiky_options({"dp=1"}, folder, "spike@step=7");
  CHECK(run(o, 4).error == "nothing");
  o.run.resume = (folder / "checkpoints").string();
  o.run.out = (folder / ".").string();
  const Outcome resumed = run(o, 8);
  INFO(resumed.lines);
  CHECK(resumed.error == "nothing");
  CHECK(resumed.progress.guards.rollbacks == 1);
}

TEST_CASE("more spikes than rollbacks end the run, and its checkpoints stay") {
  const TempFolder folder;
  SpikyOptions o = spiky_options({"dp=2"}, folder, "spike@step=6;spike@step=7");
  o.guards.spike_rollbacks = 1;
  const Outcome outcome = run(o, 12);
  INFO(outcome.error);
  CHECK(contains(outcome.error, "77 trireme: [train] a loss of "));
  CHECK(contains(outcome.error, "after 1 rollback, as many as --spike-rollbacks allows"));
  CHECK(std::filesystem::exists(folder / "checkpoints/step_00000004/manifest.json"));
}

TEST_CASE("no rollback without a checkpoint to go back to, and none without a detector") {
  const TempFolder folder;
  SpikyOptions late = spiky_options({"dp=1"}, folder, "spike@step=7");
  late.run.checkpoint_every = 8;
  const Outcome early = run(late, 7);
  CHECK(early.error == "nothing");
  CHECK(early.progress.steps == 7);
  CHECK(early.progress.guards.rollbacks == 0);
  const TempFolder other;
  SpikyOptions off = spiky_options({"dp=1"}, other, "spike@step=7");
  off.guards = {};
  const Outcome outcome = run(off, 8);
  CHECK(outcome.error == "nothing");
  CHECK(outcome.progress.guards == GuardState{});
  CHECK(outcome.progress.samples == 8 * batch);
}

TEST_CASE("a detector without checkpoints, and its flags without a detector, are refused") {
  const auto refusal = [](const std::function<void(GptOptions&)>& change) {
    GptOptions o = guarded_options({"dp=1"});
    resolve(o, 0);
    change(o);
    return failure([&] { validate(o); });
  };
  CHECK(contains(refusal([](GptOptions& o) { o.guards.spike_threshold = 8; }),
                 "64 trireme: [guards] --spike-threshold 8 goes back to a checkpoint, and this run saves none"));
  CHECK(contains(refusal([](GptOptions& o) {
                   o.guards.spike_threshold = 8;
                   o.run.out = "somewhere";
                 }),
                 "expected --out DIR and --checkpoint-every or --checkpoint-minutes"));
  CHECK(contains(refusal([](GptOptions& o) { o.guards.spike_window = 50; }), "--spike-window has no effect"));
  CHECK(contains(refusal([](GptOptions& o) { o.guards.spike_rollbacks = 1; }), "--spike-rollbacks has no effect"));
  CHECK(contains(refusal([](GptOptions& o) { o.guards.check_state = true; }), "--check-state has no effect"));
}

}  // namespace rollback_test
