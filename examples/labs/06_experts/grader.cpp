// The grader of lab 6. All is compared with one rank (one_rank.h); times are counted by examples/labs/harness/clock.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "examples/labs/06_experts/costs.h"

namespace trireme::labs::experts {

Tensor expert(const Weights& weights, const Tensor& x) {
  return linear(tanh(linear(x, weights.in, {})), weights.out, {});
}

Experts::Experts(int rank, int ranks, std::vector<Weights> here, double seconds_per_row)
    : rank_(rank),
      ranks_(ranks),
      weights_(std::move(here)),
      seconds_per_row_(seconds_per_row),
      tape_(weights_.size()) {}

std::size_t Experts::checked(const Rank& rank, std::int64_t e, const Tensor& rows) const {
  require(rank.rank() == rank_, "experts", "rank {} uses experts that are in the memory of rank {}", rank.rank(),
          rank_);
  require(e >= first() && e < first() + here(), "experts",
          "rank {} asks for expert {}, whose weights are on rank {}; expected one of its own, {} to {}", rank_, e,
          rank_of(e), first(), first() + here() - 1);
  require(rows.dims() == 2 && rows.size(1) == weights_[0].in.size(1), "experts",
          "rows of expert {} are {}; expected [R, {}]", e, rows.shape(), weights_[0].in.size(1));
  return at(e - first());
}

Tensor Experts::forward(Rank& rank, std::int64_t e, const Tensor& rows) {
  const std::size_t place = checked(rank, e, rows);
  if (rows.count() == 0) return Tensor::zeros(rows.shape());
  calls_.push_back({e, clone(rows.detach())});
  rank.compute(seconds_per_row_ * static_cast<double>(rows.size(0)), fmt::format("expert {}", e));
  Tensor x = clone(rows.detach());
  require_grad(x);
  tape_[place] = {x, expert(weights_[place], x)};
  return tape_[place].second.detach();
}

Tensor Experts::backward(Rank& rank, std::int64_t e, const Tensor& d_results) {
  const std::size_t place = checked(rank, e, d_results);
  if (d_results.count() == 0) return Tensor::zeros(d_results.shape());
  const auto& [x, y] = tape_[place];
  require(y.defined() && y.shape() == d_results.shape(), "experts",
          "gradients for expert {} are {}; expected those of its last forward, {}", e, d_results.shape(),
          y.defined() ? y.shape() : Shape{0, d_results.size(1)});
  rank.compute(2 * seconds_per_row_ * static_cast<double>(d_results.size(0)), fmt::format("backward of expert {}", e));
  trireme::backward(y, clone(d_results.detach()));
  return grad(x);
}

Tensor choices_for(const Tensor& expert, const Experts& experts, int to) {
  std::vector<std::int32_t> numbers;
  const auto chosen = expert.span<const std::int32_t>();
  for (std::int64_t e = to * experts.here(); e < (to + 1) * experts.here(); ++e)
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] == e) numbers.push_back(static_cast<std::int32_t>(i));
  return Tensor::from(std::span<const std::int32_t>(numbers), {static_cast<std::int64_t>(numbers.size())});
}

namespace {

void expect_nothing_left(Grading& grading, const Run& run) {
  for (const std::string& left : run.left) grading.expect(left);
}

/// Each rank's part [N, ...] of what should be `want` [T, ...], token by token.
void expect_tokens(Grading& grading, const std::string& what, const Split& split, const std::vector<Tensor>& got,
                   const Tensor& want, const Tensor& expert, const Tensor& before = {}) {
  for (int rank = 0; rank < split.ranks; ++rank) {
    const Tensor wanted = split.of(want, rank);
    const Tensor& have = got[at(rank)];
    grading.expect(have.defined() && have.shape() == wanted.shape(), "{} on rank {}: {}; expected {}", what, rank,
                   have.defined() ? fmt::format("{}", have.shape()) : "no tensor", wanted.shape());
    for (std::int64_t i = 0; i < wanted.size(0); ++i) {
      const std::int64_t token = split.first(rank) + i;
      const auto chosen = view::select(expert, 0, token).span<const std::int32_t>();
      const std::string name = fmt::format("{} of {}, experts [{}]", what, split.name(token), fmt::join(chosen, ", "));
      grading.expect(difference(name, view::select(have, 0, i), view::select(want, 0, token),
                                {.before = before.defined() ? view::select(before, 0, token) : Tensor()}));
    }
  }
}

void check_choices(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Routed result = routed(answers, layer, split);
    std::int64_t dropped = 0;
    for (int rank = 0; rank < split.ranks; ++rank) {
      const Tensor& got = result.choices[at(rank)].expert;
      const Tensor want = split.of(one.expert, rank);
      grading.expect(got.defined() && got.shape() == want.shape(), "the choices of rank {}: {}; expected {}", rank,
                     got.defined() ? fmt::format("{}", got.shape()) : "no tensor", want.shape());
      dropped += std::ranges::count(got.span<const std::int32_t>(), -1);
    }
    for (std::int64_t t = 0; t < split.tokens; ++t) {
      const int rank = split.rank_of(t);
      for (std::int64_t j = 0; j < layer.routing.k; ++j) {
        const auto got =
            result.choices[at(rank)].expert.data<const std::int32_t>()[(t - split.first(rank)) * layer.routing.k + j];
        const auto want = one.expert.data<const std::int32_t>()[t * layer.routing.k + j];
        grading.expect(got == want,
                       "choice {} of {}: expert {}, expected {} (-1: dropped). In all, {} choices are dropped; one "
                       "rank that has all {} tokens drops {}",
                       j, split.name(t), got, want, dropped, split.tokens, one.dropped);
      }
    }
    expect_nothing_left(grading, result.run);
  }
}

void check_gates(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Routed result = routed(answers, layer, split);
    std::vector<Tensor> gates;
    for (int rank = 0; rank < split.ranks; ++rank) {
      const Tensor dropped = split.of(one.expert, rank), want = split.of(one.gate, rank);
      const Tensor& got = result.choices[at(rank)].gate;
      const bool as_wanted = got.defined() && got.shape() == want.shape();
      gates.push_back(as_wanted ? where(dropped < 0.0, cast(want, DType::f32), cast(got.detach(), DType::f32)) : got);
    }
    expect_tokens(grading, "gates", split, gates, one.gate, one.expert);
  }
}

/// The balance losses that ranks find which know of no others, as text.
std::string losses_alone(const Layer& layer, const Split& split) {
  std::vector<std::string> losses;
  for (int rank = 0; rank < split.ranks; ++rank) {
    Layer part = layer;
    part.x = split.of(layer.x, rank);
    part.dy = split.of(layer.dy, rank);
    part.p = split.of(layer.p, rank);
    losses.push_back(part.tokens() == 0 ? "none" : fmt::format("{:.6g}", OneRank(part).balance_loss));
  }
  return fmt::format("{}", fmt::join(losses, ", "));
}

void check_loss(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    std::vector<double> losses(at(split.ranks));
    const Run run = run_ranks({.ranks = split.ranks, .collectives = true}, [&](Rank& rank) {
      losses[at(rank.rank())] = answers.balance_loss(rank, split.of(layer.p, rank.rank()), layer.routing);
    });
    for (int rank = 0; rank < split.ranks; ++rank)
      grading.expect(std::abs(losses[at(rank)] - one.balance_loss) <= 1e-5 * one.balance_loss,
                     "{:.6g} on rank {}; one rank that has all {} tokens finds {:.6g}, with K = {}. Each alone, the "
                     "ranks find {}",
                     losses[at(rank)], rank, split.tokens, one.balance_loss, layer.routing.k,
                     losses_alone(layer, split));
    expect_nothing_left(grading, run);
  }
}

/// The bits of a row: whose they are can be told from them.
std::string bits(const Tensor& row) { return {reinterpret_cast<const char*>(row.raw()), at(row.bytes())}; }

/// Which tokens the experts were given.
void check_rows(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Ran result = ran(answers, layer, split, one, false);
    std::map<std::string, std::int64_t> token_of;
    for (std::int64_t t = 0; t < split.tokens; ++t) token_of[bits(view::select(layer.x, 0, t))] = t;
    const auto chose = [&](std::int64_t t, std::int64_t e) {
      return std::ranges::count(view::select(one.expert, 0, t).span<const std::int32_t>(), e) > 0;
    };
    std::vector<std::set<std::int64_t>> given(at(layer.experts()));
    for (const Experts& experts : result.experts)
      for (const auto& [e, rows] : experts.calls()) {
        grading.expect(given[at(e)].empty(),
                       "expert {} is called more than once: its weights are read again for a few rows", e);
        for (std::int64_t i = 0; i < rows.size(0); ++i) {
          const auto token = token_of.find(bits(view::select(rows, 0, i)));
          grading.expect(token != token_of.end(), "row {} of {} for expert {} is no rank's token", i, rows.size(0), e);
          const std::int64_t t = token->second;
          grading.expect(given[at(e)].insert(t).second, "expert {} is given {} twice", e, split.name(t));
          grading.expect(chose(t, e), "expert {} is given {}, which did not choose it or was dropped", e,
                         split.name(t));
        }
      }
    grading.expect(result.error);
    for (std::int64_t t = 0; t < split.tokens; ++t)
      for (std::int64_t e = 0; e < layer.experts(); ++e)
        grading.expect(!chose(t, e) || given[at(e)].contains(t), "expert {} on rank {} is not given {}, which chose it",
                       e, result.experts[0].rank_of(e), split.name(t));
    expect_nothing_left(grading, result.run);
  }
}

/// Whose result this row is, as text; empty if nobody's.
std::string owner_of(const Tensor& row, const OneRank& one, const Split& split) {
  for (std::int64_t t = 0; t < split.tokens; ++t)
    for (std::size_t e = 0; e < one.results.size(); ++e)
      if (difference("", row, view::select(one.results[e], 0, t)).empty())
        return fmt::format(", and is what expert {} makes of {}", e, split.name(t));
  return {};
}

void check_results(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Ran result = ran(answers, layer, split, one, false);
    grading.expect(result.error);
    for (int rank = 0; rank < split.ranks; ++rank) {
      const Tensor& got = result.outputs[at(rank)].results;
      const std::int64_t k = layer.routing.k, first = split.first(rank);
      const Shape want = {(split.first(rank + 1) - first) * k, layer.width()};
      grading.expect(got.defined() && got.shape() == want, "results on rank {}: {}; expected {}", rank,
                     got.defined() ? fmt::format("{}", got.shape()) : "no tensor", want);
      for (std::int64_t i = 0; i < want[0]; ++i) {
        const std::int32_t e = one.expert.data<const std::int32_t>()[first * k + i];
        const Tensor row = view::select(got, 0, i);
        const Tensor right =
            e < 0 ? Tensor::zeros({layer.width()}) : view::select(one.results[at(e)], 0, first + i / k);
        const std::string problem = difference(
            fmt::format("the result for choice {} of {}, expert {}", i % k, split.name(first + i / k), e), row, right);
        if (!problem.empty()) grading.expect(problem + owner_of(row, one, split));
      }
    }
  }
}

void check_forward(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Ran result = ran(answers, layer, split, one, false);
    grading.expect(result.error);
    std::vector<Tensor> y;
    for (const Output& output : result.outputs) y.push_back(output.y);
    expect_tokens(grading, "y", split, y, one.y, one.expert, layer.x);
  }
}

void check_backward(const Answers& answers, Grading& grading) {
  for (const auto& [layer, split] : cases(grading)) {
    const OneRank one(layer);
    const Ran result = ran(answers, layer, split, one, true);
    grading.expect(result.error);
    std::vector<Tensor> dx, d_gate;
    for (const Gradients& gradients : result.gradients) {
      dx.push_back(gradients.x);
      d_gate.push_back(gradients.gate);
    }
    expect_tokens(grading, "gradient", split, dx, one.dx, one.expert, layer.dy);
    for (int rank = 0; rank < split.ranks; ++rank) {
      const Tensor& got = d_gate[at(rank)];
      const Shape want = split.of(one.d_gate, rank).shape();
      grading.expect(got.defined() && got.shape() == want, "gradient of the gates on rank {}: {}; expected {}", rank,
                     got.defined() ? fmt::format("{}", got.shape()) : "no tensor", want);
    }
    // All at once: a single product of two rows may be near 0, with the error of large terms.
    grading.expect(difference("gradient of the gates of all ranks", concat(d_gate, 0), one.d_gate));
    for (const Experts& experts : result.experts)
      for (std::int64_t i = 0; i < experts.here(); ++i) {
        const std::int64_t e = experts.first() + i;
        if (std::ranges::count(one.expert.span<const std::int32_t>(), e) == 0) continue;  // nobody chose it
        const Weights& weights = experts.weights()[at(i)];
        grading.expect(difference(fmt::format("gradient of expert {}'s weights, in", e), grad(weights.in),
                                  one.d_weights[at(e)].in));
        grading.expect(difference(fmt::format("gradient of expert {}'s weights, out", e), grad(weights.out),
                                  one.d_weights[at(e)].out));
      }
    expect_nothing_left(grading, result.run);
  }
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("route: the choices of one rank, and the same dropped", [&] { check_choices(answers, grading); });
  grading.check("route: gates", [&] { check_gates(answers, grading); });
  grading.check("balance_loss: that of the whole batch", [&] { check_loss(answers, grading); });
  grading.check("route, balance_loss: sums travel, not tokens", [&] { check_sums_travel(answers, grading); });
  grading.check("forward: each expert is given its tokens", [&] { check_rows(answers, grading); });
  grading.check("forward: results, choice by choice", [&] { check_results(answers, grading); });
  grading.check("forward: y, token by token", [&] { check_forward(answers, grading); });
  grading.check("forward: bytes and messages", [&] { check_traffic(answers, grading, false); });
  grading.check("forward: ports are not crowded", [&] { check_time(answers, grading); });
  grading.check("backward: the gradients of one rank", [&] { check_backward(answers, grading); });
  grading.check("backward: bytes and messages", [&] { check_traffic(answers, grading, true); });
}

}  // namespace trireme::labs::experts
