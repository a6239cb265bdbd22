// SGD, AdamW and Adafactor step by step against PyTorch's, in float64: tests/golden/optimizers.safetensors.
#include "data/safetensors.h"
#include "nn/build.h"
#include "optim/adafactor.h"
#include "optim/optimizer.h"
#include "tests/support/elements.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace pytorch_test {
namespace {

using Make = std::function<std::unique_ptr<optim::Optimizer>(const ParameterList&, const DeviceMesh&)>;

Make sgd(const optim::SgdConfig& config) {
  return [config](const ParameterList& parameters, const DeviceMesh&) { return optim::make_sgd(parameters, config); };
}
Make adamw(const optim::AdamWConfig& config) {
  return [config](const ParameterList& parameters, const DeviceMesh&) { return optim::make_adamw(parameters, config); };
}
/// PyTorch's always multiplies by the root mean square of the weights.
Make adafactor(const optim::AdafactorConfig& config) {
  return [config](const ParameterList& parameters, const DeviceMesh& mesh) {
    return optim::make_adafactor(whole_shards(parameters), mesh, config);
  };
}

}  // namespace

TEST_CASE("ten steps of SGD, AdamW and Adafactor are PyTorch's") {
  const SafetensorsFile golden("tests/golden/optimizers.safetensors");
  struct Variant {
    std::string name;
    Make make;
  };
  const std::vector<Variant> variants = {
      {"sgd", sgd({.weight_decay = 0.3})},
      {"sgd_momentum", sgd({.momentum = 0.9, .weight_decay = 0.3})},
      {"sgd_nesterov", sgd({.momentum = 0.9, .nesterov = true, .weight_decay = 0.3})},
      {"adamw", adamw({.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1})},
      {"adamw_slow", adamw({.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 2.0})},
      {"adafactor", adafactor({.weight_decay = 0.1, .scale_by_weight = true})},
      {"adafactor_small",
       adafactor({.decay = -0.5, .clip = 0.3, .weight_decay = 2.0, .scale_by_weight = true, .eps2 = 3.0})}};
  for (const Variant& variant : variants) {
    const nn::Build build(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 4);
    build.parameter("matrix", {7, 5}, {}, nn::Init::zeros(), {.decay = true});
    build.parameter("vector", {13}, {}, nn::Init::zeros());
    const ParameterList& parameters = build.parameters();
    for (const ParameterPtr& p : parameters) set_whole(*p, golden.read("start." + p->name));
    const auto optimizer = variant.make(parameters, build.mesh());
    for (int step = 0; step < 10; ++step) {
      for (const ParameterPtr& p : parameters)
        p->grad() = clone(view::select(golden.read("gradients." + p->name), 0, step));
      optimizer->step(0.01 / (step + 1), 1.0);
      for (const ParameterPtr& p : parameters) {
        const Tensor expected = view::select(golden.read(variant.name + "." + p->name), 0, step);
        // One rounding of 2^-24 for each step, of the weight and of each moment.
        CHECK_MESSAGE(relative_difference(p->local.detach(), expected) < 3 * (step + 1) * 0x1p-24, variant.name, ", ",
                      p->name, ", step ", step);
      }
    }
  }
}

}  // namespace pytorch_test
