#include "optim/gradient_norm.h"

#include <cmath>

#include "core/kernels.h"

namespace trireme::optim {

double gradient_norm(const nn::ParameterList& parameters, const DeviceMesh& mesh) {
  double sharded = 0, whole = 0;
  for (const nn::ParameterPtr& parameter : parameters) {
    if (parameter->copy_of_earlier_stage) continue;
    const double squares = kernels(parameter->value.device()).sum_squares(parameter->grad());
    (parameter->placements.tp.sharded() ? sharded : whole) += squares;
  }
  Tensor sum = Tensor::full({1}, sharded, DType::f64);
  if (mesh.size(Axis::tp) > 1) mesh.group(Axis::tp).all_reduce(sum).wait();
  *sum.data<double>() += whole;
  if (mesh.size(Axis::pp) > 1) mesh.group(Axis::pp).all_reduce(sum).wait();
  return std::sqrt(sum.item());
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0; }

}  // namespace trireme::optim
