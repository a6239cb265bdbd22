#include "optim/gradient_norm.h"

#include <array>
#include <cmath>

#include "core/kernels.h"

namespace trireme::optim {

double gradient_norm(const nn::ParameterList& parameters, const DeviceMesh& mesh) {
  // Squares of the parameters that are cut over: neither, tp, ep, both. Each is summed over exactly those axes.
  std::array<std::vector<Tensor>, 4> gradients;  // [over ep, over tp]
  for (const nn::ParameterPtr& parameter : parameters) {
    if (parameter->copy_of_earlier_stage) continue;
    const std::size_t cell =
        (parameter->placements.ep.sharded() ? 2U : 0U) + (parameter->placements.tp.sharded() ? 1U : 0U);
    gradients[cell].push_back(parameter->grad());
  }
  Tensor squares = Tensor::zeros({2, 2}, DType::f64);
  double* sums = squares.data<double>();
  for (std::size_t cell = 0; cell < gradients.size(); ++cell) {
    if (!gradients[cell].empty()) sums[cell] = kernels(gradients[cell].front().device()).sum_squares(gradients[cell]);
  }
  if (mesh.size(Axis::ep) > 1) mesh.group(Axis::ep).all_reduce(view::select(squares, 0, 1)).wait();
  Tensor sum = Tensor::full({1}, sums[1] + sums[3], DType::f64);
  if (mesh.size(Axis::tp) > 1) mesh.group(Axis::tp).all_reduce(sum).wait();
  *sum.data<double>() += sums[0] + sums[2];
  if (mesh.size(Axis::pp) > 1) mesh.group(Axis::pp).all_reduce(sum).wait();
  return std::sqrt(sum.item());
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0; }

}  // namespace trireme::optim
