#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"

namespace trireme {

double gradient_error(const std::function<Tensor(const std::vector<Tensor>& inputs)>& f,
                      const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    require(input.defined() && input.dtype() == DType::f64 && input.device() == Device::cpu, "gradient_error",
            "input {} is not an f64 tensor on the host; expected one, as the differences need its digits",
            leaves.size());
    leaves.push_back(clone(input));
    require_grad(leaves.back());
  }
  const Tensor y = f(leaves);
  const Tensor weights = Tensor::randn(y.shape(), 5, 99, y.dtype());
  backward(y, weights);

  const NoGrad guard;
  constexpr double h = 1e-6;
  double largest = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require(grad(leaves[i]).defined(), "gradient_error", "input {} got no gradient; expected one of shape {}", i,
            inputs[i].shape());
    const Tensor gradient = contiguous(grad(leaves[i]));
    std::vector<Tensor> moved = inputs;
    moved[i] = clone(inputs[i]);
    const auto sum_at = [&](std::int64_t element, double value) {
      moved[i].data<double>()[element] = value;
      return sum(f(moved) * weights).item();
    };
    for (std::int64_t j = 0; j < gradient.count(); ++j) {
      const double value = moved[i].data<const double>()[j], by_backward = gradient.data<double>()[j];
      const double above = sum_at(j, value + h), below = sum_at(j, value - h);
      const double by_differences = (above - below) / (2 * h);
      moved[i].data<double>()[j] = value;
      const double error = std::abs(by_backward - by_differences) / std::max(1.0, std::abs(by_differences));
      if (std::isnan(error)) return error;
      largest = std::max(largest, error);
    }
  }
  return largest;
}

}  // namespace trireme
