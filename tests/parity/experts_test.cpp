// Any mesh equals one rank for models with experts: ep as a part of dp, with tp and pp, with and without dropped
// tokens.
//
// Routing is discontinuous. If two logits of a token were closer than the rounding of their sums (1e-7 of logits near
// 0.1), two meshes could choose different experts, and the comparison would fail by the contribution of a whole token.
// The model here routes 128 tokens in each of 4 blocks for 6 steps. If gaps are spread evenly over 0.1, the chance that
// one of these 3072 gaps is below 1e-8 is 3e-4. With this seed it does not happen.
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "tests/parity/compare.h"
#include "tests/support/elements.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace experts_test {
namespace {

GptOptions options(const std::string& mesh, const nn::ExpertsOptions& experts, std::int64_t micro_batches = 1) {
  GptOptions o = training_options(mesh, micro_batches);
  o.model.config.experts = experts;
  return o;
}

void check_equal(const GptOptions& o) { check_parity(o, o.mesh.axes); }

/// The gradient of every router with the main loss scaled to zero, in the order of blocks.
std::vector<Tensor> router_gradients(const GptOptions& options) {
  std::mutex mutex;
  std::map<std::string, Tensor> gradients;
  on_ranks(options, [&](Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh) {
    const BatchPlan plan = o.batch_sizes().on_rank(mesh.coord(Axis::dp));
    const std::int64_t context = o.model.config.context, count = o.batch_sizes().micro_batch;
    const auto next_batch = [&](int microbatch) {
      const std::int64_t first = plan.first_sample(0, microbatch);
      Tensor ids = Tensor::empty({count, context}, DType::i32);
      for (std::int64_t i = 0; i < ids.count(); ++i)
        ids.data<std::int32_t>()[i] = static_cast<std::int32_t>((first * context + i) * 31 % 61);
      return token_batch(ids, ids, {first});
    };
    trainer.gradients(next_batch, 0.0);
    for (const ParameterPtr& p : trainer.model().parameters()) {
      if (!p->name.ends_with("router.weight")) continue;
      const std::scoped_lock lock(mutex);
      gradients[p->name] = clone(p->grad());
    }
  });
  std::vector<Tensor> all;
  for (const auto& [name, gradient] : gradients) all.push_back(gradient);
  return all;
}

/// Every router's bias after three steps, by name, and the report of the third.
struct Biases {
  std::map<std::string, Tensor> by_name;
  nn::RoutingReport report;
};

Biases biases_after(const GptOptions& options) {
  std::mutex mutex;
  Biases result;
  on_ranks(options, [&](Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh) {
    const BatchPlan plan = o.batch_sizes().on_rank(mesh.coord(Axis::dp));
    for (int step = 0; step < 3; ++step) {
      trainer.gradients(
          [&](int microbatch) {
            return made_up_batch(o, 8 * step + plan.first_sample(0, microbatch), o.batch_sizes().micro_batch);
          },
          1.0 / (8 * 16));
      trainer.update(1e-3, trainer.gradient_norm());
    }
    const std::scoped_lock lock(mutex);
    for (const BufferPtr& buffer : trainer.model().buffers()) {
      const auto [known, added] = result.by_name.emplace(buffer->name, clone(buffer->value));
      if (!added) CHECK(same_bits(buffer->value, known->second));  // the same on all ranks that have it
    }
    if (mesh.rank() == 0) result.report = *trainer.routing();
  });
  return result;
}

const nn::ExpertsOptions dropless = {.count = 4, .top_k = 2, .shared = 1, .aux_loss = 0.1, .z_loss = 0.01};
const nn::ExpertsOptions dropping = {.count = 8, .top_k = 1, .capacity_factor = 1.0, .aux_loss = 0.1};
const nn::ExpertsOptions normalised = {.count = 4, .top_k = 2, .capacity_factor = 0.8, .norm = nn::RouterNorm::after};

}  // namespace

TEST_CASE("experts: ep of 1, 2 and 4 equal one rank, dropless and with drops, top-1 and top-2, shared, own losses" *
          doctest::test_suite("thorough")) {
  for (const nn::ExpertsOptions& experts : {dropless, dropping, normalised}) {
    for (const std::string& mesh : Meshes{"dp=2", "dp=2,ep=2", "dp=4,ep=2", "dp=4,ep=4", "tp=2", "pp=2"})
      check_equal(options(mesh, experts));
    check_equal(options("dp=2,ep=2,tp=2,pp=2", experts, 2));
    check_equal(options("dp=2,ep=2", experts, 4));
  }
}

TEST_CASE("experts in every second or third block: dense and expert layers in one model, stages without a router" *
          doctest::test_suite("thorough")) {
  nn::ExpertsOptions experts = dropless;
  experts.bias_update = 0.05;
  for (const std::int64_t every : {2, 3, 4}) {
    for (const std::string& mesh : Meshes{"dp=2,ep=2", "tp=2", "pp=2", "dp=2,ep=2,tp=2,pp=2"}) {
      GptOptions o = options(mesh, experts, 2);
      o.model.config.moe_every = every;
      o.mesh.zero = static_cast<int>(every) - 1;
      check_equal(o);
    }
  }
}

TEST_CASE("experts: gated, in a Llama block, with and without sequence parallelism") {
  for (const bool sequence : {true, false}) {
    GptOptions o = options("dp=2,ep=2,tp=2", dropless);
    o.mesh.sequence_parallel = sequence;
    o.model.config.activation = Activation::swiglu;
    o.model.config.norm = Norm::rms;
    o.model.config.positions = PositionEncoding::rope;
    o.model.config.kv_heads = 2;
    o.model.config.bias = false;
    check_equal(o);
    o.model.config.experts = dropping;
    check_equal(o);
  }
}

TEST_CASE("experts: balance over the whole batch, in one micro-batch") {
  nn::ExpertsOptions experts = dropless;
  experts.balance = nn::BalanceScope::batch;
  for (const std::string& mesh : Meshes{"dp=2,ep=2", "tp=2", "dp=4"}) check_equal(options(mesh, experts));
}

TEST_CASE("the routers' own losses give the same gradient on dp, tp, pp, ep and any number of micro-batches") {
  nn::ExpertsOptions experts = dropless;
  const std::vector<Tensor> one = router_gradients(options("dp=1", experts));
  REQUIRE(one.size() == 4);
  for (const auto& [mesh, micro_batches] : std::vector<std::pair<std::string, std::int64_t>>{
           {"dp=1", 8}, {"dp=2", 1}, {"dp=4,ep=4", 2}, {"tp=2", 2}, {"pp=2", 4}, {"dp=2,ep=2,tp=2,pp=2", 2}}) {
    const std::vector<Tensor> got = router_gradients(options(mesh, experts, micro_batches));
    REQUIRE(got.size() == 4);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK_MESSAGE(relative_difference(got[i], one[i]) < parity_tolerance, mesh, ": block ", i);
  }
}

TEST_CASE("routers' biases have the same bits on any mesh, and the report the same figures") {
  nn::ExpertsOptions experts = dropless;
  experts.bias_update = 0.01;
  const Biases one = biases_after(options("dp=1", experts));
  REQUIRE(one.by_name.size() == 4);
  double moved = 0;
  for (const auto& [name, bias] : one.by_name)
    for (const float value : bias.span<float>()) moved += std::abs(value);
  CHECK(moved > 0.1);
  const auto check = [&](const GptOptions& o, const std::string& what) {
    const Biases got = biases_after(o);
    CHECK(got.by_name.size() == 4);
    for (const auto& [name, bias] : got.by_name) CHECK_MESSAGE(same_bits(bias, one.by_name.at(name)), what, ": ", name);
    CHECK(got.report.imbalance == one.report.imbalance);
    CHECK(std::abs(got.report.balance - one.report.balance) < parity_tolerance * one.report.balance);
    CHECK(std::abs(got.report.z - one.report.z) < parity_tolerance * one.report.z);
  };
  for (const std::string& mesh : Meshes{"dp=2", "dp=4,ep=4", "tp=2", "pp=2", "cp=2", "dp=2,ep=2,tp=2,pp=2"})
    check(options(mesh, experts, 2), mesh);
  GptOptions o = options("dp=2,ep=2,pp=2", experts, 4);
  o.mesh.pipeline = "zero-bubble";
  o.precision.recompute = "full";
  o.mesh.zero = 3;
  check(o, "zero-bubble, recomputed, ZeRO-3");
}

}  // namespace experts_test
