// The kernel of the update's factor: cuda/kernels/update_scale.h.
#include "cuda/kernels/update_scale.h"

#include <cmath>

#include "core/update_scale.h"

namespace trireme::cuda {

namespace {

__global__ void __launch_bounds__(32)
    update_scale_kernel(const double* loss, const double* squares, double loss_scale, double max_norm, float* scale) {
  if (threadIdx.x != 0) return;
  const double norm = sqrt(*squares) / loss_scale;
  *scale = static_cast<float>(scale_of_update(loss == nullptr ? 0.0 : *loss, norm, loss_scale, max_norm));
}

}  // namespace

void update_scale(const double* loss, const double* squares, double loss_scale, double max_norm, float* scale,
                  Stream stream) {
  launch({"update_scale", {1, 1, 1}, {32, 1, 1}, 0, stream}, update_scale_kernel, loss, squares, loss_scale, max_norm,
         scale);
}

}  // namespace trireme::cuda
