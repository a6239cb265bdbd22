#include "nn/containers.h"

namespace trireme::nn {

void Sequential::add(std::function<Tensor(const Tensor&)> function) {
  require(function != nullptr, "Sequential", "{}: an empty function as number {}; expected one that can be called",
          name(), steps_.size());
  steps_.push_back({nullptr, std::move(function)});
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const Step& step : steps_) y = step.module ? (*step.module)(y) : step.function(y);
  return y;
}

Module& Sequential::operator[](std::size_t index) const {
  if (index >= steps_.size())
    fail(ExitCode::usage, "Sequential", "{} has no module {}; expected less than {}", name(), index, steps_.size());
  if (!steps_[index].module)
    fail(ExitCode::usage, "Sequential", "number {} of {} is a function; expected the number of a module", index,
         name());
  return *steps_[index].module;
}

}  // namespace trireme::nn
