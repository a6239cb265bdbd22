#include "optim/newton_schulz.h"

#include <cmath>
#include <utility>

#include "core/kernels.h"

namespace trireme::optim {
namespace {

/// x [S, L] with S <= L, dense, is overwritten.
Tensor iterated(Tensor x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const KernelTable& k = kernels(x.device());
  const std::int64_t rows = x.size(0);
  const auto square = [&] { return Tensor::empty({rows, rows}, x.dtype(), x.device()); };  // [S, S]
  Tensor gram = square(), polynomial = square(), next = Tensor::empty(x.shape(), x.dtype(), x.device());
  for (int i = 0; i < newton_schulz_iterations; ++i) {
    k.gemm(x, view::transpose(x, 0, 1), gram, {});
    copy(gram, polynomial);
    k.gemm(gram, gram, polynomial, {.alpha = c, .beta = b});  // b A + c A A
    copy(x, next);
    k.gemm(polynomial, x, next, {.alpha = 1, .beta = a});
    std::swap(x, next);
  }
  return x;
}

}  // namespace

Tensor orthogonalised(const Tensor& x) {
  require(x.dims() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), "newton_schulz",
          "expected a matrix of f32 or f64, got {} {}", name(x.dtype()), x.shape());
  if (x.count() == 0) return clone(x);
  const bool tall = x.size(0) > x.size(1);
  Tensor y = clone(tall ? view::transpose(x, 0, 1) : x);
  const KernelTable& k = kernels(y.device());
  constexpr double eps = 1e-7;
  const double norm = std::sqrt(k.sum_squares({&y, 1}).value());
  const Tensor start = clone(y);
  k.axpby(1 / (norm + eps), start, 0, y);
  y = iterated(y);
  return tall ? contiguous(view::transpose(y, 0, 1)) : y;
}

}  // namespace trireme::optim
