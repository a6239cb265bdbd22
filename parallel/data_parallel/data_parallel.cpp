#include "parallel/data_parallel/data_parallel.h"

#include <cmath>

namespace trireme {

double DataParallel::gradient_norm() const {
  require_summed("gradient_norm");
  const Device device = shards().empty() ? Device::cpu : shards().front()->parameter->local.device();
  Tensor sum = Tensor::empty({1}, DType::f64, device);
  sum_squares(sum);
  return std::sqrt(sum.item());
}

}  // namespace trireme
