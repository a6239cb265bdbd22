// LayerNorm and RMSNorm of the kernel table, by cuda/kernels/norm.cu.
#include "cuda/kernels/norm.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

void forward(const char* entry, Norm kind, const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps,
             Tensor& y, const Tensor& mean, const Tensor& rstd) {
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    norm_forward<T>({.kind = kind,
                     .rows = size(entry, x.size(0)),
                     .width = size(entry, x.size(1)),
                     .x = dense<T>(entry, x),
                     .residual = nullptr,
                     .sum = nullptr,
                     .gamma = dense<T>(entry, gamma),
                     .beta = dense<T>(entry, beta),
                     .eps = static_cast<float>(eps),
                     .y = dense<T>(entry, y),
                     .mean = dense<float>(entry, mean),
                     .rstd = dense<float>(entry, rstd)},
                    stream());
  });
}

void backward(const char* entry, Norm kind, const Tensor& x, const Tensor& gamma, const Tensor& mean,
              const Tensor& rstd, const Tensor& dy, const Tensor& added, Tensor& dx, Tensor& dgamma,
              const Tensor& dbeta) {
  const int rows = size(entry, x.size(0));
  const Tensor partials = workspace({2, norm_backward_blocks(rows), x.size(1)}, DType::f32);  // [2, blocks, D]
  visit_training(entry, x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    norm_backward<T>({.kind = kind,
                      .rows = rows,
                      .width = size(entry, x.size(1)),
                      .h = dense<T>(entry, x),
                      .gamma = dense<T>(entry, gamma),
                      .mean = dense<float>(entry, mean),
                      .rstd = dense<float>(entry, rstd),
                      .dy = dense<T>(entry, dy),
                      .dsum = dense<T>(entry, added),
                      .dx = dense<T>(entry, dx),
                      .dgamma = dense<float>(entry, dgamma),
                      .dbeta = dense<float>(entry, dbeta),
                      .partials = dense<float>(entry, partials)},
                     stream());
  });
}

}  // namespace

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  forward(__func__, Norm::layer, x, gamma, beta, eps, y, mean, rstd);
}

void layer_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         const Tensor& added, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  backward(__func__, Norm::layer, x, gamma, mean, rstd, dy, added, dx, dgamma, dbeta);
}

void rms_norm(const Tensor& x, const Tensor& gamma, double eps, Tensor& y, Tensor& rstd) {
  forward(__func__, Norm::rms, x, gamma, {}, eps, y, {}, rstd);
}

void rms_norm_backward(const Tensor& x, const Tensor& gamma, const Tensor& rstd, const Tensor& dy, const Tensor& added,
                       Tensor& dx, Tensor& dgamma) {
  backward(__func__, Norm::rms, x, gamma, {}, rstd, dy, added, dx, dgamma, {});
}

}  // namespace trireme::cuda
