// Lab 2, ZeRO by hand: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "examples/labs/02_zero/model.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::zero {

// f32 memory, all zeros, counted for what it is. Other tensors are counted too, as buffers.
inline Tensor memory(MemoryCategory category, const Shape& shape) {
  const MemoryScope scope(category);
  return Tensor::zeros(shape);
}
inline Tensor weight_memory(const Shape& shape) { return memory(MemoryCategory::parameters, shape); }
inline Tensor gradient_memory(const Shape& shape) { return memory(MemoryCategory::gradients, shape); }
inline Tensor moment_memory(const Shape& shape) { return memory(MemoryCategory::optimizer, shape); }

/// A step of Adam (Kingma and Ba 2015, algorithm 1), element by element: writes the weights and both moments. All four
/// have equal shapes. `step` counts from 1. epsilon is larger than usual: else Adam makes large steps of gradients that
/// are rounding errors, and ranks that sum in another order than one rank would be far from it.
inline void adam(Tensor weights, const Tensor& gradient, Tensor first, Tensor second, int step) {
  constexpr double rate = 0.02, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-2;
  require(weights.shape() == gradient.shape() && first.shape() == gradient.shape() &&
              second.shape() == gradient.shape() && step >= 1,
          "adam", "weights {}, gradient {}, moments {} and {}, step {}; expected equal shapes, and a step from 1 on",
          weights.shape(), gradient.shape(), first.shape(), second.shape(), step);
  const auto g = gradient.span<const float>();
  const auto w = weights.span<float>(), m = first.span<float>(), v = second.span<float>();
  for (std::size_t i = 0; i < w.size(); ++i) {
    m[i] = static_cast<float>(beta1 * m[i] + (1 - beta1) * g[i]);
    v[i] = static_cast<float>(beta2 * v[i] + (1 - beta2) * g[i] * g[i]);
    const double mean = m[i] / (1 - std::pow(beta1, step)), square = v[i] / (1 - std::pow(beta2, step));
    w[i] -= static_cast<float>(rate * mean / (std::sqrt(square) + epsilon));
  }
}

/// Bytes on one rank, by what they are for.
struct Bytes {
  std::int64_t weights = 0, gradients = 0, moments = 0;
};

struct Answers {
  Bytes (*bytes_held)(int stage, int ranks, std::int64_t weights, std::int64_t largest);
  std::int64_t (*bytes_sent)(int stage, int ranks, std::int64_t weights);
  std::int64_t (*shard_length)(std::int64_t count, int ranks);
  Tensor (*mean_shard)(Rank& rank, const Tensor& gradient);
  void (*zero_1)(Rank& rank, Model& model, int steps);
  void (*zero_2)(Rank& rank, Model& model, int steps);
  void (*zero_3)(Rank& rank, Model& model, int steps);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"02", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::zero
