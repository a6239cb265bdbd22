// Gradients whose sums over micro-batches and ranks are known in closed form. Each contribution is a whole number times
// a ramp, so a sum is exact in f32 in any order, and shows which contributions it has.
// Read next: parallel/mesh/placement.h, tests/grad_sync/grad_sync_test.cpp.
#pragma once

#include <cstdint>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/parameter.h"

namespace trireme::testing {

/// factor * 1, factor * 2, ..., in the shape.
inline Tensor ramp(const Shape& shape, double factor) {
  Tensor x = Tensor::empty(shape);
  auto values = x.span<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(factor * static_cast<double>(i + 1));
  return x;
}

/// The contribution of a micro-batch of a rank to a parameter's gradient, in units of ramp(1).
inline double factor(std::size_t parameter, int rank, int microbatch) {
  return static_cast<double>((parameter + 1) * static_cast<std::size_t>(3 * rank + 1) +
                             static_cast<std::size_t>(microbatch));
}

/// The sum of factors over the micro-batches, and over the ranks that share this gradient.
inline double expected_factor(const DeviceMesh& mesh, const Parameter& parameter, std::size_t index, int microbatches) {
  const auto counts = [&](Axis axis, int coord) {
    return parameter.placements.on(axis) == placement::R || coord == mesh.coord(axis);
  };
  double total = 0;
  for (int data = 0; data < mesh.size(Axis::data); ++data) {
    const int ep = data % mesh.size(Axis::ep), edp = data / mesh.size(Axis::ep);
    for (int tp = 0; tp < mesh.size(Axis::tp); ++tp) {
      if (!counts(Axis::ep, ep) || !counts(Axis::edp, edp) || !counts(Axis::tp, tp)) continue;
      for (int m = 0; m < microbatches; ++m) total += factor(index, mesh.world_rank(mesh.coord(Axis::pp), data, tp), m);
    }
  }
  return total;
}

}  // namespace trireme::testing
