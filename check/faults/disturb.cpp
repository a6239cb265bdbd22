#include "check/faults/disturb.h"

#include <fmt/core.h>

#include "nn/init.h"

namespace trireme {
namespace {

void disturb_tensor(const StateTensor& weight, double factor, std::uint64_t seed) {
  if (weight.value.count() == 0) return;
  Parameter noise;
  noise.name = fmt::format("{}.noise", weight.parameter->name);
  noise.local = Tensor::empty(weight.value.shape(), DType::f32);
  noise.rectangle = weight.rectangle();
  noise.logical_rows = weight.parameter->logical_rows;
  nn::initialise(noise, nn::Init::normal(factor), seed);
  const Tensor host = clone(cast(weight.value.to(Device::cpu), DType::f32));
  const auto values = host.span<float>(), relative = noise.local.span<float>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += values[i] * relative[i];
  Tensor target = weight.value;
  copy(host, target);
}

}  // namespace

void disturb(optim::Optimizer& optimizer, double factor, std::uint64_t seed) {
  for (const StateTensor& weight : optimizer.weights()) disturb_tensor(weight, factor, seed);
  for (const StateTensor& state : optimizer.state())
    if (state.name == "master") disturb_tensor(state, factor, seed);
  optimizer.note_versions();
}

}  // namespace trireme
