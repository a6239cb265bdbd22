// A mixture of experts in f64: one rank against a loop over tokens, written from the definition, and every mesh against
// one rank. Compared are output, input gradient, and every parameter's gradient after the sums that its placements
// require.
#include "nn/moe.h"

#include <numeric>

#include "nn/expert_capacity.h"
#include "nn/positions.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace moe_test {
namespace {

constexpr double rounding = 1e-12;  // f64 sums of some 200 terms of similar size, in another order
constexpr std::int64_t batch = 4, length = 16, width = 6;

nn::MoeOptions options(std::int64_t experts, std::int64_t k, std::optional<double> capacity = {}) {
  nn::MoeOptions o;
  o.expert = {.width = width, .hidden = 8, .activation = Unary::tanh};
  o.experts = {.count = experts, .top_k = k, .capacity_factor = capacity, .aux_loss = 0.7, .z_loss = 0.3};
  return o;
}

using Weights = std::map<std::string, Tensor>;

/// Changes a parameter, whole or sharded, after its random initialisation.
using Change = std::function<void(Parameter&)>;

// ---- the definition ------------------------------------------------------------------------------------------------

double at(const Tensor& t, std::int64_t i) { return t.data<double>()[i]; }

/// One Mlp on one token; `up`, `up_bias`, `down` and `down_bias` belong to this Mlp alone.
std::vector<double> naive_mlp(const double* x, const double* up, const double* up_bias, const double* down,
                              const double* down_bias, std::int64_t hidden, bool gated) {
  std::vector<double> h(static_cast<std::size_t>(gated ? 2 * hidden : hidden)), y(static_cast<std::size_t>(width));
  for (std::size_t f = 0; f < h.size(); ++f) {
    h[f] = up_bias[f];
    for (std::size_t d = 0; d < y.size(); ++d) h[f] += up[f * y.size() + d] * x[d];
  }
  const auto f_count = static_cast<std::size_t>(hidden);
  for (std::size_t f = 0; f < f_count; ++f)
    h[f] = gated ? h[f] / (1 + std::exp(-h[f])) * h[f_count + f] : std::tanh(h[f]);
  for (std::size_t d = 0; d < y.size(); ++d) {
    y[d] = down_bias[d];
    for (std::size_t f = 0; f < f_count; ++f) y[d] += down[d * f_count + f] * h[f];
  }
  return y;
}

struct Naive {
  Tensor y;
  double loss = 0;  ///< sum(dy y) + the router's losses
  int dropped = 0;
};

Naive naive_moe(const nn::MoeOptions& o, const Weights& w, const Tensor& x, const Tensor& dy) {
  const nn::ExpertsOptions& e = o.experts;
  const auto experts = static_cast<std::size_t>(e.count), k = static_cast<std::size_t>(e.top_k);
  const std::int64_t f = o.expert.hidden;
  const auto capacity = static_cast<int>(std::ceil(
      e.capacity_factor.value_or(1e6) * static_cast<double>(e.top_k * length) / static_cast<double>(e.count)));
  const std::string up = o.expert.gate ? "gate_up" : "up";
  Naive result{Tensor::zeros(x.shape(), DType::f64)};
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<int> taken(experts);
    std::vector<double> chosen(experts), probability(experts);
    for (std::int64_t t = b * length; t < (b + 1) * length; ++t) {
      const double* token = x.data<double>() + t * width;
      std::vector<double> logits(experts), p(experts);
      for (std::size_t i = 0; i < experts; ++i) {
        for (std::int64_t d = 0; d < width; ++d)
          logits[i] += at(w.at("router.weight"), static_cast<std::int64_t>(i) * width + d) * token[d];
      }
      double z = 0;
      for (const double logit : logits) z += std::exp(logit);
      for (std::size_t i = 0; i < experts; ++i) p[i] = std::exp(logits[i]) / z;
      std::vector<std::size_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) { return logits[i] > logits[j]; });
      double among = 0;
      for (std::size_t c = 0; c < k; ++c) among += p[order[c]];
      for (std::size_t c = 0; c < k; ++c) {
        const std::size_t i = order[c];
        chosen[i] += 1;
        if (++taken[i] > capacity) {
          ++result.dropped;
          continue;
        }
        const auto part = [&](const std::string& name, std::int64_t size) {
          return w.at(name).data<double>() + static_cast<std::int64_t>(i) * size;
        };
        const std::int64_t wide = o.expert.gate ? 2 * f : f;
        const std::vector<double> y =
            naive_mlp(token, part(up + ".weight", wide * width), part(up + ".bias", wide),
                      part("down.weight", f * width), part("down.bias", width), f, o.expert.gate.has_value());
        const double gate = e.norm == nn::RouterNorm::before ? p[i] : p[i] / among;
        for (std::int64_t d = 0; d < width; ++d)
          result.y.data<double>()[t * width + d] += gate * y[static_cast<std::size_t>(d)];
      }
      if (e.shared > 0) {
        const auto all = [&](const std::string& name) { return w.at("shared." + name).data<double>(); };
        const std::vector<double> y = naive_mlp(token, all(up + ".weight"), all(up + ".bias"), all("down.weight"),
                                                all("down.bias"), f * e.shared, o.expert.gate.has_value());
        for (std::int64_t d = 0; d < width; ++d)
          result.y.data<double>()[t * width + d] += y[static_cast<std::size_t>(d)];
      }
      for (std::size_t i = 0; i < experts; ++i) probability[i] += p[i];
      result.loss += e.z_loss * std::log(z) * std::log(z) / static_cast<double>(batch * length);
    }
    for (std::size_t i = 0; i < experts; ++i) {
      result.loss += e.aux_loss * static_cast<double>(e.count) * chosen[i] / static_cast<double>(e.top_k * length) *
                     probability[i] / static_cast<double>(length) / static_cast<double>(batch);
    }
  }
  for (std::int64_t i = 0; i < x.count(); ++i) result.loss += at(dy, i) * at(result.y, i);
  return result;
}

// ---- the layer on a mesh -------------------------------------------------------------------------------------------

struct Run {
  std::string mesh = "dp=1";
  bool sequence = false;
  std::int64_t micro_batches = 1;
};

std::string to_string(const Run& r) {
  return fmt::format("{} sequence {} micro-batches {}", r.mesh, r.sequence, r.micro_batches);
}

/// Copies the tokens of `runs` between a whole sequence batch [B, T, D] and a local one [B, T', D].
void move_tokens(const Tensor& whole, const Tensor& local, const nn::PositionRuns& runs, bool to_whole) {
  for (const nn::PositionRun& run : runs) {
    Tensor w = view::slice(whole, 1, run.global, run.length), l = view::slice(local, 1, run.local, run.length);
    to_whole ? copy(l, w) : copy(w, l);
  }
}

/// Collects "y", "dx" and the gradients by parameter name, as whole tensors, once per rank.
void run_moe(
    const nn::MoeOptions& o, const Run& run, const Tensor& x, const Tensor& dy, Collected& results,
    const Change& change = [](Parameter&) {}) {
  run_mesh(run.mesh, [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3, {.sequence = run.sequence});
    nn::Moe moe(build, o);
    randomise(build.parameters(), 0.5);
    for (const ParameterPtr& p : build.parameters()) change(*p);
    build.run_state()->step_sequences = batch;
    const nn::PositionRuns runs = nn::residual_positions(*mesh, build.parallelism(), length);
    const std::int64_t tokens = runs.back().local + runs.back().length;
    const std::int64_t each = batch / mesh->size(Axis::dp) / run.micro_batches;
    const Tensor y_whole = Tensor::zeros(x.shape(), DType::f64), dx_whole = Tensor::zeros(x.shape(), DType::f64);
    for (std::int64_t m = 0; m < run.micro_batches; ++m) {
      const std::int64_t first = (mesh->coord(Axis::dp) * run.micro_batches + m) * each;
      const auto part = [&](const Tensor& t) { return view::slice(t, 0, first, each); };
      Tensor mine = Tensor::empty({each, tokens, width}, DType::f64),
             gradient = Tensor::empty(mine.shape(), DType::f64);
      move_tokens(part(x), mine, runs, false);
      move_tokens(part(dy), gradient, runs, false);
      require_grad(mine);
      const Tensor y = moe(mine);
      backward(y, gradient);
      move_tokens(part(y_whole), y.detach(), runs, true);
      move_tokens(part(dx_whole), grad(mine), runs, true);
    }
    for (const Tensor& t : {y_whole, dx_whole}) {
      mesh->group(Axis::data).all_reduce(t).wait();
      if (run.sequence) mesh->group(Axis::tp).all_reduce(t).wait();
    }
    results.add("y", y_whole);
    results.add("dx", dx_whole);
    for (const ParameterPtr& p : build.parameters()) {
      for (const Axis axis : gradient_axes(p->placements, *mesh)) mesh->group(axis).all_reduce(p->grad()).wait();
      results.add(p->name, whole(p->grad(), *p, *mesh));
    }
  });
}

Weights weights_of(
    const nn::MoeOptions& o, const Change& change = [](Parameter&) {}) {
  Weights weights;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    const nn::Moe moe(build, o);
    randomise(build.parameters(), 0.5);
    for (const ParameterPtr& p : build.parameters()) {
      change(*p);
      weights[p->name] = p->local.detach();
    }
  });
  return weights;
}

Weights one_rank(
    const nn::MoeOptions& o, const Tensor& x, const Tensor& dy, const Change& change = [](Parameter&) {}) {
  Collected results;
  run_moe(o, {}, x, dy, results, change);
  Weights reference;
  for (const auto& [name, tensors] : results.all()) reference[name] = tensors.front();
  return reference;
}

Tensor input() { return random({batch, length, width}, 1); }
Tensor output_gradient() { return random({batch, length, width}, 2); }

void check_meshes(
    const nn::MoeOptions& o, const std::vector<Run>& runs, const Tensor& x, const Tensor& dy,
    const Change& change = [](Parameter&) {}) {
  const Weights reference = one_rank(o, x, dy, change);
  for (const Run& run : runs) {
    Collected results;
    run_moe(o, run, x, dy, results, change);
    CHECK(results.all().size() == reference.size());
    for (const auto& [name, tensors] : results.all()) {
      for (const Tensor& tensor : tensors)
        CHECK_MESSAGE(relative_difference(tensor, reference.at(name)) < rounding, to_string(run), ": ", name);
    }
  }
}

/// The gradient of every element by central differences of the definition.
Tensor differences(const nn::MoeOptions& o, Weights w, const std::string& name, const Tensor& x, const Tensor& dy) {
  constexpr double h = 1e-6;
  Tensor moved = clone(name == "dx" ? x : w.at(name));
  if (name != "dx") w[name] = moved;
  const Tensor gradient = Tensor::empty(moved.shape(), DType::f64);
  for (std::int64_t i = 0; i < moved.count(); ++i) {
    double& value = moved.data<double>()[i];
    const double middle = value;
    const auto loss = [&](double v) {
      value = v;
      return naive_moe(o, w, name == "dx" ? moved : x, dy).loss;
    };
    gradient.data<double>()[i] = (loss(middle + h) - loss(middle - h)) / (2 * h);
    value = middle;
  }
  return gradient;
}

std::vector<nn::MoeOptions> kinds() {
  std::vector<nn::MoeOptions> all = {options(4, 2), options(4, 1), options(4, 2, 0.75), options(8, 1, 1.0)};
  all[0].experts.shared = 2;
  all[1].expert.gate = Unary::silu;
  all[1].experts.shared = 1;
  all[2].experts.norm = nn::RouterNorm::after;
  return all;
}

}  // namespace

TEST_CASE("dropless and with capacity, a mixture equals the loop over tokens: output and every gradient") {
  const Tensor x = input(), dy = output_gradient();
  for (const nn::MoeOptions& o : kinds()) {
    CAPTURE(o.experts.count);
    CAPTURE(o.experts.top_k);
    const Weights weights = weights_of(o), got = one_rank(o, x, dy);
    const Naive expected = naive_moe(o, weights, x, dy);
    CHECK((expected.dropped > 0) == o.experts.capacity_factor.has_value());
    CHECK(relative_difference(got.at("y"), expected.y) < rounding);
    for (const auto& [name, gradient] : got) {
      // Central differences are off by 1e-16 |loss| / h in each element, and losses are near 100.
      if (name != "y") CHECK_MESSAGE(relative_difference(gradient, differences(o, weights, name, x, dy)) < 1e-7, name);
    }
  }
}

TEST_CASE("one expert that every token chooses is an Mlp") {
  nn::MoeOptions o = options(1, 1);
  o.experts.aux_loss = o.experts.z_loss = 0;
  const Tensor x = input(), dy = output_gradient();
  const Weights mixture = one_rank(o, x, dy);
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    nn::Mlp mlp(build, o.expert);
    randomise(build.parameters(), 0.5);
    Tensor leaf = clone(x);
    require_grad(leaf);
    const Tensor y = mlp(leaf);
    backward(y, dy);
    CHECK(relative_difference(mixture.at("y"), y) < rounding);
    CHECK(relative_difference(mixture.at("dx"), grad(leaf)) < rounding);
    for (const ParameterPtr& p : build.parameters()) {
      const Tensor& gradient = mixture.at(p->name);
      CHECK(relative_difference(view::reshape(gradient, p->local.shape()), p->grad()) < rounding);
    }
  });
}

TEST_CASE("expert gradients are summed over edp only: any ep, dp, tp, cp and number of micro-batches equals one rank") {
  const std::vector<Run> runs = {{"dp=2"},           {"dp=2,ep=2"},      {"dp=4,ep=2"},          {"dp=4,ep=4"},
                                 {"tp=2"},           {"tp=4"},           {"dp=2,ep=2,tp=2"},     {"cp=2"},
                                 {"cp=2,ep=2"},      {"cp=4"},           {"dp=2,cp=2,ep=4"},     {"dp=2,cp=2,ep=2"},
                                 {"cp=2,ep=2,tp=2"}, {"dp=1", false, 4}, {"dp=2,ep=2", false, 2}};
  for (const nn::MoeOptions& o : kinds()) check_meshes(o, runs, input(), output_gradient());
}

TEST_CASE("under sequence parallelism the router's gradient is a sum over tp, and drops follow the whole sequence") {
  const std::vector<Run> runs = {
      {"tp=2", true}, {"tp=4", true}, {"dp=2,ep=2,tp=2", true}, {"cp=2,ep=2,tp=2", true}, {"dp=2,tp=2", true, 2}};
  for (const nn::MoeOptions& o : kinds()) check_meshes(o, runs, input(), output_gradient());
}

TEST_CASE("a rank whose experts get no tokens joins every collective and contributes zeros") {
  const Tensor x = input(), dy = output_gradient();
  for (std::int64_t i = 0; i < batch * length; ++i) x.data<double>()[i * width] = 3;  // a constant, for the router
  const Change to_first = [](Parameter& p) {
    if (p.name != "router.weight") return;
    for (std::int64_t e = 0; e < p.local.size(0); ++e)
      p.local.data<double>()[e * width] = e == 0 ? 40 : e == 1 ? 20 : 0;
  };
  for (const std::int64_t k : {1, 2}) {
    for (const std::optional<double> capacity : {std::optional<double>(), std::optional<double>(1.0)}) {
      const nn::MoeOptions o = options(4, k, capacity);
      check_meshes(o, {{"dp=2,ep=2"}, {"dp=4,ep=4"}, {"dp=2,ep=2,tp=2"}, {"dp=2,ep=2,tp=2", true}, {"cp=4,ep=4"}}, x,
                   dy, to_first);
      const Weights got = one_rank(o, x, dy, to_first);
      const Tensor unused = contiguous(view::slice(got.at("up.weight"), 0, k, 4 - k));
      CHECK(kernels(Device::cpu).sum_squares({&unused, 1}).value() == 0);
      CHECK(kernels(Device::cpu).sum_squares({&got.at("up.weight"), 1}).value() > 0);
    }
  }
}

TEST_CASE("the router's own losses depend on no mesh and no cutting into micro-batches: main loss zeroed") {
  const Tensor x = input(), zero = Tensor::zeros({batch, length, width}, DType::f64);
  const std::vector<Run> runs = {{"dp=2"},           {"dp=4"},           {"tp=2"},
                                 {"tp=2", true},     {"tp=4", true},     {"dp=2,ep=2"},
                                 {"cp=2"},           {"cp=4,ep=2"},      {"dp=2,cp=2,tp=2,ep=4", true},
                                 {"dp=1", false, 2}, {"dp=1", false, 4}, {"dp=2,tp=2", true, 2}};
  for (const bool balance : {true, false}) {
    nn::MoeOptions o = options(4, 2);
    (balance ? o.experts.z_loss : o.experts.aux_loss) = 0;
    check_meshes(o, runs, x, zero);
    const Weights got = one_rank(o, x, zero);
    CHECK(kernels(Device::cpu).sum_squares({&got.at("router.weight"), 1}).value() > 1e-6);
    CHECK(kernels(Device::cpu).sum_squares({&got.at("up.weight"), 1}).value() == 0);
    CHECK(relative_difference(got.at("router.weight"), differences(o, weights_of(o), "router.weight", x, zero)) < 1e-7);
  }
}

TEST_CASE("balance over the whole batch: one micro-batch on any mesh, and not the sum of balances per sequence") {
  const Tensor x = input(), zero = Tensor::zeros({batch, length, width}, DType::f64);
  nn::MoeOptions o = options(4, 2);
  o.experts.z_loss = 0;
  const Weights by_sequence = one_rank(o, x, zero);
  o.experts.balance = nn::BalanceScope::batch;
  check_meshes(o, {{"dp=2"}, {"dp=4,ep=2"}, {"cp=2"}, {"tp=2", true}, {"dp=2,cp=2,tp=2", true}}, x, zero);
  CHECK(relative_difference(one_rank(o, x, zero).at("router.weight"), by_sequence.at("router.weight")) > 0.01);
}

TEST_CASE("the largest are chosen, the lower index among equals") {
  const std::vector<double> values = {1, 3, 3, 2, /**/ 5, 5, 5, 5, /**/ -1, -2, -1, 0};
  const Tensor x = Tensor::from(std::span<const double>(values), {3, 4}), chosen = nn::top_k(x, 3);
  const std::vector<std::int32_t> expected = {1, 2, 3, 0, 1, 2, 3, 0, 2};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(chosen.data<std::int32_t>()[i] == expected[i]);
  CHECK_THROWS_AS(nn::top_k(x, 5), Error);
}

TEST_CASE("places are given out by position, then by choice; what comes later takes none away") {
  const std::vector<std::int32_t> choices = {0, 1, 1, 0, 1, 2, 0, 1};  // four tokens, two choices each
  const std::vector<std::int32_t> expected = {0, 1, 1, 0, -1, 2, -1, -1};
  for (const std::string& text : Meshes{"cp=1", "cp=2"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      const nn::PositionRuns runs = nn::attention_positions(*mesh, 4);
      const auto mine = [&](const std::vector<std::int32_t>& whole) {
        const Tensor local = Tensor::empty({1, 4 / mesh->size(Axis::cp), 2}, DType::i32);
        move_tokens(Tensor::from(std::span<const std::int32_t>(whole), {1, 4, 2}), local, runs, false);
        return local;
      };
      CHECK(same_bits(nn::drop_beyond(mine(choices), 3, 2, *mesh), mine(expected)));
    });
  }
  CHECK(nn::expert_capacity({.count = 8, .top_k = 2, .capacity_factor = 1.0}, 16) == 4);
  CHECK(nn::expert_capacity({.count = 8, .top_k = 2, .capacity_factor = 1.1}, 16) == 5);
  CHECK(nn::expert_capacity({.count = 10, .top_k = 1, .capacity_factor = 1.1}, 100) == 11);  // not 12 by rounding
}

TEST_CASE("evaluation drops nothing and adds no loss") {
  const nn::MoeOptions dropping = options(4, 2, 0.5), dropless = options(4, 2);
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const auto output = [&](const nn::MoeOptions& o, bool training) {
      const nn::Build build(mesh, DType::f64, 3);
      nn::Moe moe(build, o);
      randomise(build.parameters(), 0.5);
      build.run_state()->training = training;
      build.run_state()->step_sequences = training ? batch : 0;
      return moe(input()).detach();
    };
    CHECK(same_bits(output(dropping, false), output(dropless, false)));
    CHECK(same_bits(output(dropless, true), output(dropless, false)));
    CHECK(relative_difference(output(dropping, true), output(dropping, false)) > 0.1);
  });
}

}  // namespace moe_test
