// The layer of lab 6 on one rank, in f64: every expert computes every token, and what a token did not choose counts 0
// times. So nothing is sent, sorted or put back.
// Read next: grader.cpp.
#pragma once

#include <algorithm>
#include <numeric>

#include "autograd/engine.h"
#include "examples/labs/06_experts/lab.h"

namespace trireme::labs::experts {

/// A batch, and the layer's weights.
struct Layer {
  Routing routing;
  Tensor x, dy;                  // [T, D]
  Tensor p;                      // [T, E]: the router's probabilities
  std::vector<Weights> weights;  // by expert

  std::int64_t tokens() const { return x.size(0); }
  std::int64_t width() const { return x.size(1); }
  std::int64_t experts() const { return p.size(1); }
};

/// What one rank finds for a Layer.
struct OneRank {
  Tensor expert;             // [T, K] i32; -1: dropped
  Tensor gate;               // [T, K] f64
  std::int64_t dropped = 0;  // choices
  double balance_loss = 0;
  std::vector<Tensor> results;     // by expert: [T, D], of all tokens
  Tensor y, dx;                    // [T, D]
  Tensor d_gate;                   // [T, K]
  std::vector<Weights> d_weights;  // by expert

  explicit OneRank(const Layer& layer) {
    choose(layer);
    compute(layer);
  }

 private:
  void choose(const Layer& layer) {
    const std::int64_t tokens = layer.tokens(), experts = layer.experts(), k = layer.routing.k;
    const std::int64_t limit = capacity(layer.routing, tokens, experts);
    expert = Tensor::zeros({tokens, k}, DType::i32);
    gate = Tensor::zeros({tokens, k}, DType::f64);
    std::vector<std::int64_t> order(at(experts)), taken(order.size());
    std::vector<double> mean(order.size());
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* p = layer.p.data<const float>() + t * experts;
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return p[a] > p[b]; });
      double chosen = 0;
      for (std::int64_t j = 0; j < k; ++j) chosen += p[order[at(j)]];
      for (std::int64_t j = 0; j < k; ++j) {
        const auto e = order[at(j)];
        const bool kept = taken[at(e)]++ < limit;
        dropped += kept ? 0 : 1;
        expert.data<std::int32_t>()[t * k + j] = kept ? static_cast<std::int32_t>(e) : -1;
        gate.data<double>()[t * k + j] = k == 1 ? p[e] : p[e] / chosen;
      }
      for (std::size_t e = 0; e < mean.size(); ++e) mean[e] += double{p[e]} / static_cast<double>(tokens);
    }
    for (std::size_t e = 0; e < mean.size(); ++e)
      balance_loss +=
          static_cast<double>(experts) * mean[e] * static_cast<double>(taken[e]) / static_cast<double>(tokens * k);
  }

  void compute(const Layer& layer) {
    const auto leaf = [](const Tensor& from) {
      Tensor x = clone(cast(from, DType::f64));
      require_grad(x);
      return x;
    };
    const Tensor x = leaf(layer.x), weight = leaf(gate);
    std::vector<Weights> weights;
    Tensor sums = x;
    for (std::int64_t e = 0; e < layer.experts(); ++e) {
      const Weights& own = layer.weights[at(e)];
      weights.push_back({leaf(own.in), leaf(own.out)});
      const Tensor mask = cast(equal(expert, static_cast<double>(e)), DType::f64);  // [T, K]
      const Tensor all = labs::experts::expert(weights.back(), x);                  // [T, D]
      results.push_back(all.detach());
      sums = sums + sum(mask * weight, 1, true) * all;
    }
    trireme::backward(sums, cast(layer.dy, DType::f64));
    y = sums.detach();
    dx = grad(x);
    d_gate = grad(weight);
    for (const Weights& each : weights) d_weights.push_back({grad(each.in), grad(each.out)});
  }
};

}  // namespace trireme::labs::experts
