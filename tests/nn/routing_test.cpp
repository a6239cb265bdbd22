// The record of a step's routing: loads are counted once, the biases follow from them, and the report has their
// figures.
#include "nn/routing.h"

#include "nn/router.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace routing_test {
namespace {

constexpr std::int64_t batch = 3, length = 8, width = 5, experts = 4;
constexpr double rate = 0.125;  // a power of two: sums of it are exact

nn::ExpertsOptions options(std::int64_t top_k) {
  return {.count = experts, .top_k = top_k, .aux_loss = 0.5, .z_loss = 0.25, .bias_update = rate};
}

/// A router on one rank, with random weights, and its log.
struct Fixture {
  explicit Fixture(const nn::ExpertsOptions& o)
      : mesh(std::make_shared<const DeviceMesh>(self_group(), MeshShape{})),
        build(mesh, DType::f64, 3),
        router(build / "router", width, o, 0.5),
        x(random({batch, length, width}, 7, DType::f64, uniform(-0.5, 0.5))) {
    build.run_state()->step_sequences = batch;
    if (!build.buffers().empty()) bias = build.buffers().front()->value;
  }
  MeshPtr mesh;
  nn::Build build;
  nn::Router router;
  Tensor x, bias;

  nn::RoutingReport finish(bool applied = true) { return build.routing().finish(*mesh, false, applied); }
};

std::vector<double> loads(const Tensor& expert) {
  std::vector<double> load(experts);
  for (std::int64_t i = 0; i < expert.count(); ++i) load[static_cast<std::size_t>(expert.data<std::int32_t>()[i])] += 1;
  return load;
}

}  // namespace

TEST_CASE("a router's bias affects which experts are chosen, but not the gates") {
  for (const nn::RouterNorm norm : {nn::RouterNorm::before, nn::RouterNorm::after}) {
    nn::ExpertsOptions o = options(2);
    o.norm = norm;
    Fixture f(o);
    f.bias.span<float>()[2] = 5;  // more than any probability: everyone's first choice
    const nn::Router::Choice choice = f.router.choose(f.x);
    const Tensor logits = f.router(f.x);
    const auto* z = logits.data<double>();
    for (std::int64_t token = 0; token < batch * length; ++token, z += experts) {
      const auto* expert = choice.expert.data<std::int32_t>() + 2 * token;
      CHECK(expert[0] == 2);
      int second = -1;
      for (int e = 0; e < experts; ++e)
        if (e != 2 && (second < 0 || z[e] > z[second])) second = e;
      CHECK(expert[1] == second);
      double sum = 0;
      for (int e = 0; e < experts; ++e)
        if (norm == nn::RouterNorm::before || e == 2 || e == second) sum += std::exp(z[e]);
      CHECK(choice.gate.data<double>()[2 * token] == doctest::Approx(std::exp(z[2]) / sum).epsilon(1e-12));
    }
  }
}

TEST_CASE("the bias of an expert moves up when it was chosen less than the mean, and down when more") {
  Fixture f(options(1));
  std::vector<double> expected(experts);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> load(experts);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const Tensor x = random({batch, length, width}, static_cast<std::uint64_t>(10 + 2 * step + microbatch),
                              DType::f64, uniform(-0.5, 0.5));
      const std::vector<double> part = loads(f.router.choose(x).expert);
      for (std::size_t e = 0; e < experts; ++e) load[e] += part[e];
    }
    f.finish();
    const double mean = 2.0 * batch * length / experts;
    for (std::size_t e = 0; e < experts; ++e) {
      expected[e] += load[e] < mean ? rate : load[e] > mean ? -rate : 0;
      CHECK(f.bias.span<float>()[static_cast<std::size_t>(e)] == expected[e]);
    }
  }
  CHECK(*std::max_element(expected.begin(), expected.end()) > 0);
}

TEST_CASE("with the bias, a router that sent everything to one expert comes to use all") {
  Fixture f(options(1));
  f.bias.span<float>()[1] = 1;
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    f.router.choose(f.x);
    last = f.finish().imbalance;
    if (step == 0) first = last;
  }
  CHECK(first == experts);  // the busiest has E times the mean
  CHECK(last < 2.5);
}

TEST_CASE("a step that was skipped moves no bias and leaves no counts behind") {
  Fixture f(options(1)), fresh(options(1));
  f.router.choose(f.x);
  f.finish(false);
  for (const float value : f.bias.span<float>()) CHECK(value == 0);
  const Tensor other = random({batch, length, width}, 99, DType::f64, uniform(-0.5, 0.5));
  for (Fixture* each : {&f, &fresh}) {
    each->router.choose(other);
    each->finish();
  }
  CHECK(same_bits(f.bias, fresh.bias));
}

TEST_CASE("neither evaluation nor a forward without the tape is counted") {
  Fixture f(options(1));
  {
    const NoGrad guard;  // like the first forward of a recomputed block
    f.router.choose(f.x);
  }
  f.build.run_state()->training = false;
  f.router.choose(f.x);
  CHECK(f.finish().imbalance == 0);
  for (const float value : f.bias.span<float>()) CHECK(value == 0);
}

TEST_CASE("the report has the router's losses before their weights") {
  Fixture f(options(2));
  const nn::Router::Choice choice = f.router.choose(f.x);
  const Tensor logits = f.router(f.x);
  double balance = 0, z = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<double> probability(experts), load(experts);
    for (std::int64_t t = b * length; t < (b + 1) * length; ++t) {
      const auto* row = logits.data<double>() + t * experts;
      double sum = 0;
      for (int e = 0; e < experts; ++e) sum += std::exp(row[e]);
      for (std::size_t e = 0; e < experts; ++e) probability[e] += std::exp(row[e]) / sum / length;
      for (int k = 0; k < 2; ++k) load[static_cast<std::size_t>(choice.expert.data<std::int32_t>()[2 * t + k])] += 1;
      z += std::log(sum) * std::log(sum) / (batch * length);
    }
    for (std::size_t e = 0; e < experts; ++e) balance += experts * load[e] / (2.0 * length) * probability[e] / batch;
  }
  const std::vector<double> load = loads(choice.expert);
  const nn::RoutingReport report = f.finish();
  CHECK(report.balance == doctest::Approx(balance).epsilon(1e-12));
  CHECK(report.z == doctest::Approx(z).epsilon(1e-12));
  CHECK(report.imbalance == *std::max_element(load.begin(), load.end()) / (2.0 * batch * length / experts));
}

TEST_CASE("with force_balance, tokens take the experts in turn, with the router's gates") {
  nn::ExpertsOptions o = options(2);
  o.force_balance = true;
  Fixture f(o);
  const nn::Router::Choice choice = f.router.choose(f.x);
  CHECK(loads(choice.expert) == std::vector<double>(experts, 2.0 * batch * length / experts));
  CHECK(choice.expert.data<std::int32_t>()[2] == 2);
  const Tensor p = softmax(f.router(f.x));
  CHECK(choice.gate.data<double>()[2] == p.data<double>()[experts + 2]);
  CHECK(f.finish().imbalance == 1);
}

TEST_CASE("balance over the whole batch is refused if a step has more sequences than its one micro-batch") {
  nn::ExpertsOptions o = options(2);
  o.balance = nn::BalanceScope::batch;
  Fixture f(o);
  f.router.choose(f.x);
  CHECK(f.finish().balance > 0);
  f.build.run_state()->step_sequences = 2 * batch;
  const std::string message = error_of([&] { f.router.choose(f.x); }, ExitCode::internal);
  CHECK(says(message, "router: BalanceScope::batch needs all sequences of the step in one micro-batch"));
  CHECK(says(message, "expected 6 of them, got 3; use one micro-batch, or BalanceScope::sequence"));
}

TEST_CASE("the losses of routers are the same bits wherever the stages of the pipeline are cut") {
  const std::vector<double> z = {0.1, 1e-9, 0.7, 1.0 / 3, 3e-5, 0.2};
  std::vector<nn::RoutingReport> reports;
  const auto collect = [&](const std::string& mesh_text, std::size_t first_stage) {
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      nn::RoutingLog log;
      for (std::size_t i = 0; i < z.size(); ++i) {
        if (mesh->size(Axis::pp) > 1 && mesh->is_first(Axis::pp) != (i < first_stage)) continue;
        nn::Routing& router = log.add(experts);
        router.z = z[i];
        router.balance = 1 + z[i] / 7;
      }
      const nn::RoutingReport report = log.finish(*mesh, false, true);
      if (mesh->rank() == 0) reports.push_back(report);
    });
  };
  collect("pp=1", 0);
  for (std::size_t first_stage = 0; first_stage <= z.size(); ++first_stage) collect("pp=2", first_stage);
  for (const nn::RoutingReport& report : reports) {
    CHECK(report.z == reports.front().z);
    CHECK(report.balance == reports.front().balance);
  }
}

}  // namespace routing_test
