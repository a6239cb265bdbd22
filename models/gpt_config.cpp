#include "models/gpt_config.h"

namespace trireme {

template <>
NamedValues<Activation> named_values() {
  return {{"gelu", Activation::gelu},
          {"gelu-tanh", Activation::gelu_tanh},
          {"swiglu", Activation::swiglu},
          {"geglu", Activation::geglu},
          {"relu2", Activation::relu2}};
}
template <>
NamedValues<Norm> named_values() {
  return {{"layer", Norm::layer}, {"rms", Norm::rms}};
}
template <>
NamedValues<PositionEncoding> named_values() {
  return {{"learned", PositionEncoding::learned}, {"rope", PositionEncoding::rope}};
}
template <>
NamedValues<nn::RouterNorm> named_values() {
  return {{"before", nn::RouterNorm::before}, {"after", nn::RouterNorm::after}};
}
template <>
NamedValues<nn::BalanceScope> named_values() {
  return {{"sequence", nn::BalanceScope::sequence}, {"batch", nn::BalanceScope::batch}};
}

}  // namespace trireme
