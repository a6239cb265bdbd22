// Injected faults: the syntax of TRIREME_FAULT, and that each kind acts on the rank and in the step that it names,
// once, and only if it is allowed.
#include "check/faults/injection.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/support/batches.h"
#include "tests/support/errors.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/launch/ranks.h"
#include "train/step/trainer.h"

using namespace trireme;
using namespace trireme::testing;
using fault::Fault;
using fault::FaultKind;
using fault::Point;

namespace fault_injection_test {
namespace {

GptOptions small_options(const std::string& mesh, std::int64_t zero = 0) {
  GptOptions o;
  o.model.config = {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocab = 31};
  o.model.vocab = 31;
  o.mesh.axes = mesh;
  o.mesh.zero = zero;
  o.batch.global_batch = 8;
  o.batch.micro_batches = 2;
  o.precision.threads = 1;
  return o;
}

/// What a rank recorded: the loss and the norm of the whole gradient for each step, and its weights after the last one.
struct Seen {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};

/// Runs `steps` in this order on every rank of the options' mesh, with `faults`. Updates only if the norm is finite.
std::vector<Seen> steps_with(GptOptions o, const std::string& faults, const std::vector<int>& steps) {
  resolve(o, 0);
  validate(o);
  std::vector<Seen> seen(static_cast<std::size_t>(o.mesh.shape.ranks()));
  run_ranks(o, [&](Rank& rank) {
    const auto mesh = std::make_shared<const DeviceMesh>(rank.world, o.mesh.shape);
    Trainer trainer(make_gpt(o, o.model.config, mesh), o);
    std::optional<fault::Injector> injector;
    if (!faults.empty()) trainer.observe(injector.emplace(faults, false, rank, *mesh));
    const BatchPlan plan = o.batch_sizes().on_rank(mesh->coord(Axis::dp));
    Seen& mine = seen[static_cast<std::size_t>(rank.world->rank())];
    for (const int step : steps) {
      rank.step = step;
      const auto next = [&](int i) {
        return made_up_batch(plan.first_sample(8 * step, i), o.batch_sizes().micro_batch, 8, 31);
      };
      mine.losses.push_back(pipeline::global_loss(*mesh, trainer.gradients(next, 1.0 / 64).pipeline.loss));
      mine.norms.push_back(trainer.gradient_norm());
      if (std::isfinite(mine.norms.back())) trainer.update(1e-3, mine.norms.back());
    }
    for (const StateTensor& weight : trainer.optimizer().weights()) {
      const Tensor dense = contiguous(weight.value);
      mine.weights.insert(mine.weights.end(), dense.span<float>().begin(), dense.span<float>().end());
    }
  });
  return seen;
}

std::string refusal(const std::string& text) {
  return failure([&] { fault::parse(text); });
}

}  // namespace

TEST_CASE("a variable set to nothing asks for nothing; anything else has to be allowed") {
  setenv("TRIREME_FAULT", "", 1);
  CHECK(fault::from_environment(false).empty());
  CHECK(fault::from_environment(true).empty());
  setenv("TRIREME_FAULT", "kill@step=5", 1);
  CHECK(contains(failure([] { fault::from_environment(false); }), "--allow-fault-injection is not given"));
  CHECK(fault::from_environment(true) == "kill@step=5");
  unsetenv("TRIREME_FAULT");
}

TEST_CASE("faults are read with their defaults") {
  const std::vector<Fault> faults =
      fault::parse("kill@rank=1,step=5;slow@step=2-4,ms=30,rank=all,point=data,start=any;spike@step=3,factor=1e4");
  REQUIRE(faults.size() == 3);
  CHECK(faults[0].kind == FaultKind::kill);
  CHECK(faults[0].rank == 1);
  CHECK(faults[0].first_step == 5);
  CHECK(faults[0].last_step == 5);
  CHECK(faults[0].point == Point::backward);
  CHECK(faults[0].times == 1);
  CHECK(faults[0].start == 0);
  CHECK(faults[1].rank == Fault::all_ranks);
  CHECK(faults[1].point == Point::data);
  CHECK(faults[1].last_step == 4);
  CHECK(faults[1].times == 3);
  CHECK(faults[1].ms == 30);
  CHECK_FALSE(faults[1].start.has_value());
  CHECK(faults[2].rank == Fault::all_ranks);
  CHECK(faults[2].factor == 1e4);
}

TEST_CASE("what is no fault is refused with the grammar") {
  for (const char* text :
       {"", ";", "kill", "kill@", "kill@rank=1", "crash@step=1", "kill@step=0", "kill@step=5-4",
        "kill@step=1,point=now", "kill@step=1,rank=-1", "kill@step=1,ms=3", "slow@step=1", "flip@step=1,point=data",
        "flip@step=1,bit=32", "spike@step=1,factor=x", "kill@step", "kill@step=99999999999"}) {
    const std::string message = refusal(text);
    CHECK_MESSAGE(message.starts_with("64 "), text, ": ", message);
    CHECK_MESSAGE(contains(message, "expected KIND@step=S"), message);
    CHECK_MESSAGE(contains(message, "TRIREME_FAULT"), message);
  }
  GptOptions o = small_options("dp=2");
  resolve(o, 0);
  CHECK(contains(failure([&] { fault::require_possible("kill@step=1,rank=2", o); }), "a rank below 2"));
}

TEST_CASE("nan poisons one element before the sums, in one pass, with every kind of sums") {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    CAPTURE(zero);
    const std::vector<Seen> seen = steps_with(small_options("dp=2", zero), "nan@step=2,rank=1", {1, 2, 2, 3});
    for (const Seen& rank : seen) {
      CHECK(std::isfinite(rank.norms[0]));
      CHECK(std::isnan(rank.norms[1]));
      CHECK(std::isfinite(rank.losses[1]));
      CHECK(std::isfinite(rank.norms[2]));  // step 2 again
      CHECK(std::isfinite(rank.norms[3]));
    }
  }
  const Seen in_loss = steps_with(small_options("pp=2"), "nan@step=1,rank=1,point=forward", {1}).front();
  CHECK(std::isnan(in_loss.losses[0]));
  const Seen often = steps_with(small_options("dp=1"), "nan@step=1,times=2", {1, 1, 1}).front();
  CHECK(std::isnan(often.norms[1]));
  CHECK(std::isfinite(often.norms[2]));
}

TEST_CASE("spike scales loss and gradient of one pass by its factor") {
  const Seen plain = steps_with(small_options("dp=2"), "", {1, 2}).front();
  const Seen spiked = steps_with(small_options("dp=2"), "spike@step=2,factor=64", {1, 2}).front();
  CHECK(spiked.losses[0] == plain.losses[0]);
  CHECK(spiked.losses[1] == doctest::Approx(64 * plain.losses[1]));
  CHECK(spiked.norms[1] == doctest::Approx(64 * plain.norms[1]));
}

TEST_CASE("flip changes one bit of one rank's weights") {
  GptOptions o = small_options("dp=2");
  o.optimizer.optimizer = "sgd";
  o.optimizer.momentum = 0;
  o.optimizer.weight_decay = 0;
  const std::string faults = "flip@step=1,rank=1,tensor=blocks.1.mlp.up.weight,element=5,bit=22";
  const std::vector<Seen> seen = steps_with(o, faults, {1});
  int differing = 0;
  for (std::size_t i = 0; i < seen[0].weights.size(); ++i)
    differing += static_cast<int>(std::memcmp(&seen[0].weights[i], &seen[1].weights[i], sizeof(float)) != 0);
  CHECK(differing == 1);
  CHECK(contains(failure([&] { steps_with(o, "flip@step=1,tensor=none", {1}); }), "has no tensor 'none'"));
}

TEST_CASE("a rank that has nothing to poison says so") {
  GptOptions o = small_options("pp=2");
  o.optimizer.freeze = "wte.weight,wpe.weight,blocks.0.*";  // all of rank 0
  const std::string frozen = failure([&] { steps_with(o, "nan@step=1,rank=0", {1}); });
  CHECK_MESSAGE((frozen.starts_with("64 ") && contains(frozen, "all of its parameters are frozen")), frozen);
  const std::string beyond = failure([&] { steps_with(small_options("dp=1"), "nan@step=1,element=999999", {1}); });
  CHECK_MESSAGE((beyond.starts_with("64 ") && contains(beyond, "no tensor with an element 999999")), beyond);
}

TEST_CASE("throw, oom and desync end every rank with the exit code of their kind") {
  const auto ending = [](const std::string& faults) {
    return failure([&] { steps_with(small_options("dp=2"), faults, {1, 2}); });
  };
  CHECK(ending("throw@step=2,rank=1").starts_with("70 "));
  CHECK(contains(ending("throw@step=2,rank=1,point=optimizer"), "[fault]"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these end the process themselves
  CHECK(ending("oom@step=2,rank=1").starts_with("75 "));
#endif
  CHECK(ending("desync@step=2,rank=1").starts_with("76 "));
  CHECK(ending("throw@step=7") == "nothing");
  CHECK(ending("throw@step=2,start=1") == "nothing");
}

}  // namespace fault_injection_test
