#include "parallel/parameters/state_tensor.h"

namespace trireme {

std::string StateTensor::full_name() const {
  return name.empty() ? parameter->name : fmt::format("optimizer.{}.{}", name, parameter->name);
}

std::vector<StateTensor> whole_weights(const ParameterList& parameters) {
  std::vector<StateTensor> weights;
  for (const ParameterPtr& p : parameters) weights.push_back({"", p.get(), p->local.detach(), nullptr});
  return weights;
}

}  // namespace trireme
