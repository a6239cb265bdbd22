// The layers that the grader of lab 6 makes up, and how an answer runs them on ranks.
// Read next: grader.cpp.
#pragma once

#include "examples/labs/06_experts/one_rank.h"

namespace trireme::labs::experts {

/// Which of a batch's tokens each rank has.
struct Split {
  int ranks;
  std::int64_t tokens;
  std::int64_t first(int rank) const { return tokens * rank / ranks; }
  Tensor of(const Tensor& x, int rank) const {
    return clone(view::slice(x, 0, first(rank), first(rank + 1) - first(rank)));
  }
  int rank_of(std::int64_t token) const {
    int rank = 0;
    while (first(rank + 1) <= token) ++rank;
    return rank;
  }
  std::string name(std::int64_t token) const {
    const int rank = rank_of(token);
    return fmt::format("token {} (row {} of rank {})", token, token - first(rank), rank);
  }
};

/// Random probabilities that prefer one expert, so that its capacity does not suffice.
inline Layer layer_of(Grading& grading, std::int64_t tokens, std::int64_t experts, int k, std::int64_t width = 8) {
  Layer layer;
  layer.routing = {k, 0.25 * grading.pick(3, 5)};
  layer.x = grading.random({tokens, width});
  layer.dy = grading.random({tokens, width});
  Tensor logits = grading.random({tokens, experts});
  const std::int64_t hot = grading.pick(0, static_cast<int>(experts) - 1);
  for (std::int64_t t = 0; t < tokens; ++t) logits.data<float>()[t * experts + hot] += 1.5F;
  layer.p = softmax(logits);
  for (std::int64_t e = 0; e < experts; ++e)
    layer.weights.push_back({scale(grading.random({6, width}), 0.5), scale(grading.random({width, 6}), 0.5)});
  return layer;
}

/// A layer with one choice a token, in which chosen[e] tokens, one after the other, choose expert e.
inline Layer layer_that_chooses(Grading& grading, const std::vector<std::int64_t>& chosen, double capacity_factor) {
  const std::int64_t tokens = std::accumulate(chosen.begin(), chosen.end(), std::int64_t{0});
  Layer layer = layer_of(grading, tokens, static_cast<std::int64_t>(chosen.size()), 1);
  layer.routing.capacity_factor = capacity_factor;
  layer.p = Tensor::zeros(layer.p.shape());
  std::int64_t token = 0;
  for (std::int64_t e = 0; e < layer.experts(); ++e)
    for (std::int64_t i = 0; i < chosen[at(e)]; ++i) layer.p.data<float>()[token++ * layer.experts() + e] = 1;
  return layer;
}

/// A layer and its ranks: few and many, some without tokens.
struct Case {
  Layer layer;
  Split split;
};

inline std::vector<Case> cases(Grading& grading) {
  std::vector<Case> all;
  const auto add = [&](int ranks, std::int64_t tokens, int k) {
    all.push_back({layer_of(grading, tokens, ranks * grading.pick(ranks < 3 ? 3 : 1, 4), k), {ranks, tokens}});
  };
  add(1, grading.pick(20, 40), 2);
  add(2, 2 * grading.pick(10, 20) + 1, 2);
  add(4, 4 * grading.pick(10, 20) + 2, 1);
  add(4, 4 * grading.pick(10, 20) + 3, 3);
  add(4, 3, 2);
  add(grading.pick(3, 6), 61, 2);
  return all;
}

/// What the ranks have after a layer with the choices of `one`.
struct Ran {
  std::vector<Experts> experts;
  std::vector<Output> outputs;
  std::vector<Gradients> gradients;
  Run run;
  std::string error;  // of a rank, or a deadlock
};

inline Ran ran(const Answers& answers, const Layer& layer, const Split& split, const OneRank& one, bool backward,
               double seconds_per_row = 1e-6) {
  Ran result;
  const std::int64_t here = layer.experts() / split.ranks;
  for (int rank = 0; rank < split.ranks; ++rank) {
    std::vector<Weights> weights;
    for (std::int64_t e = rank * here; e < (rank + 1) * here; ++e) {
      weights.push_back({clone(layer.weights[at(e)].in), clone(layer.weights[at(e)].out)});
      require_grad(weights.back().in);
      require_grad(weights.back().out);
    }
    result.experts.emplace_back(rank, split.ranks, weights, seconds_per_row);
  }
  result.outputs.resize(at(split.ranks));
  result.gradients.resize(at(split.ranks));
  const auto layer_on = [&](Rank& rank) {
    const std::size_t r = at(rank.rank());
    const Choices choices{split.of(one.expert, rank.rank()), split.of(cast(one.gate, DType::f32), rank.rank())};
    result.outputs[r] = answers.forward(rank, result.experts[r], choices, split.of(layer.x, rank.rank()));
    if (!backward) return;
    result.gradients[r] =
        answers.backward(rank, result.experts[r], choices, result.outputs[r].results, split.of(layer.dy, rank.rank()));
  };
  try {
    result.run = run_ranks({.ranks = split.ranks, .collectives = true}, layer_on);
  } catch (const Error& error) { result.error = error.reason(); }
  return result;
}

struct Routed {
  std::vector<Choices> choices;  // by rank
  Run run;
};

inline Routed routed(const Answers& answers, const Layer& layer, const Split& split) {
  Routed result;
  result.choices.resize(at(split.ranks));
  result.run = run_ranks({.ranks = split.ranks, .collectives = true}, [&](Rank& rank) {
    result.choices[at(rank.rank())] = answers.route(rank, split.of(layer.p, rank.rank()), layer.routing);
  });
  return result;
}

}  // namespace trireme::labs::experts
