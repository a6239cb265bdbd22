// A step with a loss or gradient that is not finite is skipped: nothing changes on any rank, the origin is named, and
// the run goes on as if it had never seen the samples.
#include <cmath>
#include <limits>

#include "tests/guards/support.h"
#include "tests/support/errors.h"
#include "tests/support/events.h"

using namespace trireme;
using namespace trireme::testing;

namespace skip_test {
namespace {

const std::vector<Case> cases = {{"dp=1"},         {"dp=2,tp=2"},      {"pp=2"},         {"dp=3"},
                                 {"dp=1,cp=2"},    {"dp=2,tp=2,pp=2"}, {"dp=2,ep=2", 1}, {"dp=2", 1},
                                 {"dp=2,tp=2", 2}, {"dp=2,pp=2", 2},   {"dp=3", 3},      {"dp=2,pp=2", 3}};

constexpr std::int64_t bad_step = 3;

/// Puts a NaN into a gradient of rank `rank`, in micro-batch 1 of a step: only `once`, or every time it is computed.
struct Poison {
  int rank = 0;
  bool once = true;
  bool first = false;  // in this rank's first matrix, not in its last
  bool gain = false;   // in the gain of a norm, which each rank of tp has, and not in a matrix
};

std::string poisoned_parameter(Trainer& trainer, const Poison& poison) {
  std::string name;
  for (const ParameterPtr& p : trainer.model().parameters())
    if (p->decay != poison.gain && (name.empty() || !poison.first)) name = p->name;
  return name;
}

struct Outcome {
  std::map<int, std::vector<Tensor>> bits;  // by rank
  std::string line, parameter;
};

/// Trains five steps. One of them gets a NaN; without `poison`, the samples of that step are left out instead.
Outcome five_steps(const Case& c, const Poison* poison) {
  Outcome outcome;
  std::mutex mutex;
  on_ranks(guarded_options(c), [&](Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh) {
    Progress progress;
    std::string line;
    Messages events([&](const std::string& text) { line += text; });
    Guards guards(o, trainer, nullptr, progress, events);
    const std::string parameter = poisoned_parameter(trainer, poison != nullptr ? *poison : Poison{});
    bool armed = false;
    trainer.gradient_watch().set_tamper([&](const Parameter& p, int microbatch) {
      if (!armed || p.name != parameter || microbatch != 1) return;
      p.grad().data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
      if (poison->once) armed = false;
    });
    std::vector<Tensor> before;
    bool poisoned = poison == nullptr;
    make_steps(
        guards, trainer, o, progress, 5,
        [&](std::int64_t step) {
          if (step != bad_step || (poison == nullptr && progress.samples != 24)) return;
          if (poison == nullptr) {
            progress.samples += o.batch_sizes().global_batch;
          } else if (!std::exchange(poisoned, true)) {
            before = bits_of(trainer);
            armed = mesh.rank() == poison->rank;
          }
        },
        [&](bool updated) {
          armed = false;
          if (updated) return;
          CHECK(progress.steps == bad_step - 1);
          CHECK(trainer.optimizer().steps() == bad_step - 1);
          CHECK_MESSAGE(same_bits(bits_of(trainer), before), c.mesh, " zero ", c.zero, " rank ", mesh.rank());
        });
    CHECK(progress.samples == 6 * 12);
    CHECK(progress.guards.skipped == (poison ? std::vector<SkippedSamples>{{.first = 24, .last = 35, .step = bad_step}}
                                             : std::vector<SkippedSamples>{}));
    const std::scoped_lock lock(mutex);
    outcome.bits[mesh.rank()] = bits_of(trainer);
    if (poison && mesh.rank() == poison->rank) outcome.parameter = parameter;
    if (mesh.rank() == 0) outcome.line = line;
  });
  return outcome;
}

}  // namespace

TEST_CASE("a NaN on one rank: nothing changes, it is named, and the run goes on as if it never saw the samples") {
  for (const Case& c : cases) {
    const int ranks = parse_mesh(c.mesh, 0).ranks();
    const Outcome clean = five_steps(c, nullptr);
    CHECK(clean.line.empty());
    for (const bool once : {true, false}) {
      const Poison poison{.rank = ranks - 1, .once = once};
      const Outcome skipped = five_steps(c, &poison);
      for (const auto& [rank, bits] : clean.bits)
        CHECK_MESSAGE(same_bits(bits, skipped.bits.at(rank)), c.mesh, " zero ", c.zero, " rank ", rank);
      INFO(c.mesh, " zero ", c.zero, ": ", skipped.line);
      CHECK(contains(skipped.line,
                     fmt::format("step {} skipped: the gradient norm is nan: the gradient of {} on rank {} (", bad_step,
                                 skipped.parameter, poison.rank)));
      CHECK(contains(skipped.line,
                     once ? "finite when computed again: suspect the machine" : ", micro-batch 1, samples "));
      CHECK(contains(skipped.line, "a second computation gives the same") == !once);
    }
  }
}

TEST_CASE("a NaN in a table that two stages share is named where it was, not where its sum went") {
  for (const Case& c : {Case{"pp=2"}, Case{"dp=2,pp=2"}, Case{"pp=2", 1}, Case{"pp=2", 3}}) {
    const Poison poison{.rank = 0, .once = false, .first = true};
    const Outcome skipped = five_steps(c, &poison);
    INFO(c.mesh, " zero ", c.zero, ": ", skipped.line);
    CHECK(skipped.parameter == "wte.weight");
    CHECK(contains(skipped.line, "the gradient of wte.weight on rank 0 ("));
  }
}

TEST_CASE("a NaN in one rank's copy of a replicated gradient ends the step on all ranks, not in a hang") {
  for (const Case& c : {Case{"tp=2"}, Case{"dp=2,tp=2", 1}}) {
    const Poison poison{.rank = 1, .gain = true};
    const Outcome skipped = five_steps(c, &poison);
    INFO(c.mesh, " zero ", c.zero, ": ", skipped.line);
    CHECK(contains(skipped.line, fmt::format("the gradient of {} on rank 1 (", skipped.parameter)));
  }
}

TEST_CASE("the samples that are named are those of the micro-batch, on the rank that had them") {
  // dp=3, 12 samples: rank 2 has samples 8 to 11 of a step, 10 and 11 of them in micro-batch 1. The step begins with
  // sample 24.
  const Poison poison{.rank = 2, .once = false};
  CHECK(contains(five_steps({"dp=3"}, &poison).line, "on rank 2 (dp=2,tp=0,pp=0), micro-batch 1, samples 34-35;"));
}

TEST_CASE("a loss that is not finite is named as such, before the gradients it spoils") {
  for (const Case& c : {Case{"dp=2,pp=2"}, Case{"tp=2"}, Case{"dp=1,cp=2"}, Case{"dp=2", 1}}) {
    GptOptions o = guarded_options(c);
    o.guards.check_replicas = 0;  // the test itself changes weights
    std::string line;
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
      Progress progress;
      Messages events([&](const std::string& text) {
        if (mesh.rank() == 0) line = text;
      });
      Guards guards(options, trainer, nullptr, progress, events);
      bool spoilt = false;
      make_steps(guards, trainer, options, progress, 2, [&](std::int64_t step) {
        // Sets the last norm's gain to infinity on all ranks that have it, so that the logits are not finite.
        trainer.optimizer().weights();  // settles
        for (const ParameterPtr& p : trainer.model().parameters()) {
          if (p->name != "norm.weight") continue;
          if (step == 2) p->local.data<float>()[0] = std::exchange(spoilt, true) ? 1.0F : INFINITY;
        }
      });
    });
    INFO(c.mesh, " zero ", c.zero, ": ", line);
    CHECK(contains(line, "the loss on rank "));
  }
}

TEST_CASE("too many skipped steps in a row end the run with all the facts; an update restarts the count") {
  for (const Case& c : {Case{"dp=2,tp=2"}, Case{"dp=2", 2}}) {
    GptOptions o = guarded_options(c);
    o.guards.max_skipped = 3;
    int attempts = 0;
    const std::string error = failure([&] {
      on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
        Progress progress;
        EventStream events;
        Guards guards(options, trainer, nullptr, progress, events);
        int attempt = 0;
        trainer.gradient_watch().set_tamper([&](const Parameter& p, int) {
          const bool bad = attempt == 1 || attempt == 2 || attempt >= 4;
          if (mesh.rank() == 1 && bad && p.name == "blocks.1.mlp.up.weight")
            p.grad().data<float>()[0] = std::numeric_limits<float>::infinity();
        });
        make_steps(guards, trainer, options, progress, 9, [&](std::int64_t) {
          ++attempt;
          if (mesh.rank() == 0) attempts = attempt;
        });
      });
    });
    INFO(error);
    CHECK(attempts == 6);
    CHECK(contains(error, "77 trireme: [train] the gradient norm is "));
    CHECK(contains(error, "3 steps in a row"));
    CHECK(contains(error, "the gradient of blocks.1.mlp.up.weight on rank 1 ("));
    CHECK(contains(error, ", micro-batch 0, samples "));
  }
}

TEST_CASE("if one skipped step is too many, the message has only the remedy for its cause") {
  for (const bool once : {true, false}) {
    GptOptions o = guarded_options({"dp=2"});
    o.guards.max_skipped = 1;
    const std::string error = failure([&] {
      on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
        Progress progress;
        EventStream events;
        Guards guards(options, trainer, nullptr, progress, events);
        bool armed = mesh.rank() == 1;
        trainer.gradient_watch().set_tamper([&](const Parameter& p, int) {
          if (!armed || p.name != "blocks.1.mlp.up.weight") return;
          // The sign of a NaN has no meaning, and is not printed: "nan", never "-nan".
          p.grad().data<float>()[0] = std::copysign(std::numeric_limits<float>::quiet_NaN(), once ? 1.0F : -1.0F);
          armed = !once;
        });
        make_steps(guards, trainer, options, progress, 1, [](std::int64_t) {});
      });
    });
    INFO(error);
    CHECK(contains(error, "77 trireme: [train] the gradient norm is nan; expected a finite number; the gradient of "));
    CHECK(contains(error, "suspect the machine") == once);
    CHECK(contains(error, "look at that machine") == once);
    CHECK(contains(error, "lower --lr or --clip, raise --warmup-steps, or look at the samples") == !once);
    CHECK(contains(error, "--lr") == !once);
  }
}

TEST_CASE("in f16 the loss scaler still handles an overflow") {
  GptOptions o = guarded_options({"dp=2"});
  o.precision.dtype = DType::f16;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    Progress progress;
    std::string line;
    Messages events([&](const std::string& text) { line += text; });
    Guards guards(options, trainer, nullptr, progress, events);
    bool armed = mesh.rank() == 1;
    trainer.gradient_watch().set_tamper([&](const Parameter& p, int) {
      if (std::exchange(armed, false)) p.grad().data<float>()[0] = std::numeric_limits<float>::infinity();
    });
    make_steps(guards, trainer, options, progress, 1);
    CHECK(contains(line, "step 1 skipped: its gradients overflowed in f16"));
    CHECK(trainer.scaler().skipped() == 1);
    CHECK(progress.guards.skipped.empty());
    CHECK(progress.samples == 24);
  });
}

}  // namespace skip_test
