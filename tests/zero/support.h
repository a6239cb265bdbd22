// Hand-made parameters in hand-made units, and ranks on a mesh to shard them over.
// Read next: parallel/zero/zero.h, tests/zero/gradients_test.cpp.
#pragma once

#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "nn/init.h"
#include "parallel/zero/zero.h"
#include "tests/support/known_sums.h"
#include "tests/support/mesh.h"

namespace trireme::testing {

/// A model that is a list of parameters, each unit used once, in order.
struct HandMade {
  std::shared_ptr<Units> units = std::make_shared<Units>();
  ParameterList parameters;
  std::vector<UnitUse> uses;
  Unit* unit = nullptr;

  void begin_unit(const std::string& name) {
    unit = units->add(name);
    uses.emplace_back(units, units->add_use(unit));
  }
  ParameterPtr add(const std::string& name, const Shape& local, const Placements& placements = {},
                   DType dtype = DType::f32) {
    auto parameter = std::make_shared<Parameter>();
    parameter->name = name;
    parameter->global_shape = local;  // ignores tp and ep, which these tests do not need
    parameter->rectangle = {local, local};
    for (std::int64_t& start : parameter->rectangle.start) start = 0;
    parameter->placements = placements;
    parameter->logical_rows = local[0];
    parameter->local = Tensor::zeros(local, dtype);
    nn::initialise(*parameter, nn::Init::normal(1.0), 9);
    require_grad(parameter->local);
    parameters.push_back(parameter);
    if (unit != nullptr) unit->add(parameter);
    return parameter;
  }
};

/// Gives each pipeline stage its own parameter names, except for the tied one.
inline void name_by_stage(const HandMade& model, const DeviceMesh& mesh) {
  for (const ParameterPtr& p : model.parameters) {
    if (p->name != "tied") p->name += fmt::format(" of stage {}", mesh.coord(Axis::pp));
  }
}

/// sum(value * weights): the gradient of value is `weights`. For tests of gradients, in which units are not used.
inline Tensor weighted_sum(const Parameter& parameter, const Tensor& weights) {
  return sum(cast_to(parameter.local, DType::f32) * weights);
}

}  // namespace trireme::testing
