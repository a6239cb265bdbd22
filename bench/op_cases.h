// The operations and layers that bench/op_bench.cpp times. bench/peers/pytorch_ops.py has the same list, in the same
// order, with the same shapes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace trireme::bench {

struct OpCase {
  std::string name;
  bool f32_only = false;
  /// Makes the inputs, and returns one call: a forward, or a forward and a backward, or a step.
  std::function<std::function<void()>(DType dtype, bool large)> prepare;
};

const std::vector<OpCase>& op_cases();

}  // namespace trireme::bench
