// Parameters made by hand, with gradients whose sums are known in closed form.
// Read next: parallel/data_parallel/grad_sync.h, tests/grad_sync/grad_sync_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "parallel/data_parallel/grad_sync.h"
#include "tests/support/known_sums.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

inline constexpr ProcessGroup::Deadline deadline{20.0};

inline ParameterPtr make_parameter(const std::string& name, const Shape& local, Placement tp = placement::I,
                                   Placement dp = placement::R) {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = name;
  parameter->local = Tensor::zeros(local);
  parameter->placements = {.edp = dp, .ep = dp, .tp = tp};
  require_grad(parameter->local);
  return parameter;
}

/// sum(value * weights): the gradient of value is `weights`.
inline Tensor weighted_sum(const Parameter& parameter, const Tensor& weights) {
  return sum(parameter.value() * weights);
}

}  // namespace trireme::testing
