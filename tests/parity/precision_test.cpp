// f16 with loss scaling: an overflow on one rank skips the step on all ranks, and a skipped step changes only the
// scale. bf16: a mesh is about as far from f32 as one rank in bf16.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/kernels.h"
#include "tests/parity/compare.h"
#include "tests/parity/faulty_group.h"
#include "tests/support/elements.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace precision_test {
namespace {

std::vector<Tensor> everything(Trainer& trainer) {
  std::vector<Tensor> all;
  for (const ParameterPtr& p : trainer.model().parameters()) all.push_back(clone(p->local));
  for (const StateTensor& s : trainer.optimizer().state()) all.push_back(clone(s.value));
  return all;
}

}  // namespace

TEST_CASE("infinity on one rank: all ranks skip; weights, moments and step count stay, the scale falls") {
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
    for (int bad_rank = 0; bad_rank < 2; ++bad_rank) {
      GptOptions o = training_options(mesh);
      o.precision.dtype = DType::f16;
      o.precision.scaling.hysteresis = 1;
      on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& ranks) {
        gradients_of_step(trainer, options, ranks);
        REQUIRE(trainer.update(1e-3, trainer.gradient_norm()));
        const std::vector<Tensor> before = everything(trainer);
        const double scale = trainer.scaler().scale();

        gradients_of_step(trainer, options, ranks, 8);
        if (ranks.rank() == bad_rank) {
          for (const ParameterPtr& p : trainer.model().parameters()) {
            if (!p->copy_of_earlier_stage) p->grad().data<float>()[0] = INFINITY;
          }
        }
        // A summed gradient is the same on all data ranks, so the infinity must be on all of them too.
        if (ranks.size(Axis::data) > 1) {
          for (const ParameterPtr& p : trainer.model().parameters())
            ranks.group(Axis::data).all_reduce(p->grad(), ReduceOp::max).wait();
        }
        CHECK_FALSE(trainer.update(1e-3, trainer.gradient_norm()));
        CHECK(same_bits(before, everything(trainer)));
        CHECK(trainer.optimizer().steps() == 1);
        CHECK(trainer.scaler().scale() == scale / 2);
        CHECK(trainer.scaler().skipped() == 1);
      });
    }
  }
}

TEST_CASE("infinity in one rank's experts: the ranks that hold others, and other stages, skip with it") {
  for (const char* mesh : {"dp=2,ep=2", "dp=2,ep=2,pp=2", "dp=2,ep=2,tp=2"}) {
    GptOptions o = training_options(mesh);
    o.model.config.experts = {.count = 4, .top_k = 2, .bias_update = 0.1};
    o.precision.dtype = DType::f16;
    o.precision.scaling.hysteresis = 1;
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& ranks) {
      gradients_of_step(trainer, options, ranks);
      REQUIRE(trainer.update(1e-3, trainer.gradient_norm()));
      std::vector<Tensor> before = everything(trainer), biases;
      for (const BufferPtr& buffer : trainer.model().buffers()) biases.push_back(clone(buffer->value));

      gradients_of_step(trainer, options, ranks, 8);
      if (ranks.rank() == 0) {
        for (const ParameterPtr& p : trainer.model().parameters())
          if (p->placements.ep.sharded()) p->grad().data<float>()[0] = INFINITY;  // no other rank has these experts
      }
      CHECK_FALSE(trainer.update(1e-3, trainer.gradient_norm()));
      CHECK(same_bits(before, everything(trainer)));
      for (std::size_t i = 0; i < biases.size(); ++i)
        CHECK(same_bits({biases[i]}, {trainer.model().buffers()[i]->value}));
      CHECK(trainer.scaler().skipped() == 1);
    });
  }
}

TEST_CASE("an activation that overflows f16 is seen, and a smaller scale mends it") {
  GptOptions o = training_options("tp=2");
  o.precision.dtype = DType::f16;
  o.precision.loss_scale = "dynamic";
  o.precision.scaling.hysteresis = 1;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    trainer.scaler().set_state(
        {.scale = 16777216, .good_updates = 0, .overflows_left = 1, .in_a_row = 0, .skipped = 0});
    int skipped = 0;
    for (;; ++skipped) {
      REQUIRE(skipped < 20);
      gradients_of_step(trainer, options, mesh);
      if (trainer.update(1e-3, trainer.gradient_norm())) break;
    }
    CHECK(skipped > 0);
    CHECK(trainer.scaler().scale() == std::ldexp(16777216.0, -skipped));
  });
}

namespace {

/// The loss scale after each attempt of a step, negative if the step was skipped. The scale begins far too high and
/// doubles after every second update, so that f16 overflows again and again.
std::vector<double> scales(const std::string& mesh, std::int64_t micro_batch, std::int64_t zero, std::int64_t experts) {
  constexpr int attempts = 16;
  constexpr double far_too_high = 0x1p28;
  GptOptions o = training_options(mesh);
  o.model.config.layers = 2;
  o.model.config.experts.count = experts;
  o.batch.micro_batches = {};
  o.batch.micro_batch = micro_batch;
  o.mesh.zero = zero;
  o.precision.dtype = DType::f16;
  o.precision.loss_scale = "dynamic";
  o.precision.scaling.window = 2;
  o.precision.scaling.hysteresis = 1;
  std::vector<double> result(attempts);
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& ranks) {
    trainer.scaler().set_state(
        {.scale = far_too_high, .good_updates = 0, .overflows_left = 1, .in_a_row = 0, .skipped = 0});
    for (int i = 0; i < attempts; ++i) {
      gradients_of_step(trainer, options, ranks, 8 * i);
      const bool updated = trainer.update(1e-3, trainer.gradient_norm());
      if (ranks.rank() == 0)
        result[static_cast<std::size_t>(i)] = updated ? trainer.scaler().scale() : -trainer.scaler().scale();
    }
  });
  return result;
}

}  // namespace

TEST_CASE("which steps are skipped, and the loss scale, depend neither on the micro-batch nor on the mesh") {
  for (const std::int64_t experts : {0, 4}) {
    const std::vector<double> expected = scales("dp=1", 8, 0, experts);
    REQUIRE(std::count_if(expected.begin(), expected.end(), [](double s) { return s < 0; }) > 2);
    REQUIRE(std::count_if(expected.begin(), expected.end(), [](double s) { return s > 0; }) > 4);
    struct Cut {
      const char* mesh;
      std::int64_t micro_batch, zero;
    };
    for (const Cut& c : {Cut{"dp=1", 1, 0}, Cut{"dp=1", 2, 0}, Cut{"dp=1", 4, 0}, Cut{"dp=2", 1, 0}, Cut{"dp=2", 4, 0},
                         Cut{"dp=2", 2, 1}, Cut{"dp=2", 1, 2}, Cut{"dp=2", 2, 3}, Cut{"tp=2", 1, 0}, Cut{"tp=2", 4, 0},
                         Cut{"pp=2", 1, 0}, Cut{"pp=2", 4, 0}, Cut{"dp=2,tp=2,pp=2", 1, 3}, Cut{"dp=2,ep=2", 2, 1}}) {
      if (experts == 0 && std::string(c.mesh).find("ep=") != std::string::npos) continue;
      const std::vector<double> got = scales(c.mesh, c.micro_batch, c.zero, experts);
      CHECK_MESSAGE(got == expected, c.mesh, " micro-batch ", c.micro_batch, " zero ", c.zero, " experts ", experts,
                    ": ", fmt::format("{}; expected {}", fmt::join(got, " "), fmt::join(expected, " ")));
    }
  }
}

TEST_CASE("the loss scale changes neither loss, norm nor weights beyond the rounding of f16") {
  double losses[2], norms[2];
  std::map<std::string, Tensor> masters[2];
  for (const int power : {0, 1}) {
    GptOptions o = training_options("dp=1");
    o.precision.dtype = DType::f16;
    o.precision.loss_scale = power == 0 ? "1024" : "4096";
    o.optimizer.optimizer = "sgd";  // AdamW would hide a wrong scale
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
      StepNumbers numbers = trainer.numbers(gradients_of_step(trainer, options, mesh));
      losses[power] = numbers.loss();
      norms[power] = numbers.norm();
      CHECK(trainer.gradient_norm() == norms[power]);
      REQUIRE(trainer.update(0.5, norms[power]));
      for (const StateTensor& s : trainer.optimizer().state())
        if (s.name == "master") masters[power].emplace(s.full_name(), clone(s.value));
    });
  }
  CHECK(losses[0] == losses[1]);
  CHECK(norms[0] == doctest::Approx(norms[1]).epsilon(1e-3));
  REQUIRE(!masters[0].empty());
  REQUIRE(masters[0].size() == masters[1].size());
  // Biases begin at 0, so here they are the update alone.
  for (const auto& [name, master] : masters[0])
    CHECK_MESSAGE(relative_difference(master, masters[1].at(name)) < 1e-3, name);
}

namespace {

/// The mesh in bf16 beside one rank in bf16, both compared with one rank in f32.
ParityResult in_bf16(
    const std::string& mesh, const WrapWorld& wrap = [](auto world) { return world; }) {
  GptOptions o = training_options(mesh, 2);
  o.precision.dtype = DType::bf16;
  resolve(o, 0);
  validate(o);
  set_threads(1);
  const auto reference = parity_reference(in_f32(o), gpt_parity(o.model.config));
  const ParityReport one_rank = Parity(on_one_rank(o), reference).compare(self_group());
  const Parity parity(o, reference);
  std::mutex mutex;
  ParityReport report;
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     const ParityReport mine = parity.compare(wrap(world));
                     const std::scoped_lock lock(mutex);
                     report = mine;
                   });
  return parity_result(o, report, &one_rank, reference);
}

}  // namespace

TEST_CASE(
    "in bf16 a mesh is about as far from f32 as one rank in bf16, and a missing contribution is far beyond that") {
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2"})
    CHECK(in_bf16(mesh).distance <= most_rounding_ratio);
  const Fault forgets_the_others = [](Tensor& x, const ProcessGroup& group, const std::function<void()>& sum) {
    const Tensor own = clone(x);
    sum();
    if (x.count() > 1000) copy(scale(own, group.size()), x);  // a gradient bucket; scaled, so that its size is right
  };
  const auto faulty = [&](auto world) { return std::make_shared<FaultyGroup>(world, "dp", forgets_the_others); };
  const ParityResult result = in_bf16("dp=2", faulty);
  CHECK(result.distance > 3 * most_rounding_ratio);
  CHECK_FALSE(result.explained);  // nor does rounding on one rank reach as far
}

TEST_CASE("in bf16 a mesh is not equal to one rank if one rank, too, is far from f32") {
  GptOptions o = training_options("dp=2", 2);
  o.precision.dtype = DType::bf16;
  ParityReport wrong;
  wrong.gradient_norm = wrong.first_step = 1;  // of twice the size
  const ParityResult result = parity_result(o, wrong, &wrong, nullptr);
  CHECK(result.distance == 1);
  CHECK_FALSE(result.equal());
  wrong.first_step = 0.1;
  CHECK(parity_result(o, wrong, &wrong, nullptr).equal());
}

}  // namespace precision_test
