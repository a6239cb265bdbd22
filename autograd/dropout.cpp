#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"

namespace trireme {
namespace {

/// y = mask x / (1 - p);  dx = mask dy / (1 - p): the mask is computed again, never stored
struct Dropout : Op {
  static constexpr const char* name = "dropout";
  double p = 0;
  std::uint64_t seed = 0, stream = 0;
  Rectangle where;
  Tensor run(const Tensor& x) const {
    Tensor y = empty_like(x);
    kernels(x.device()).dropout(contiguous(x), p, seed, stream, where, y);
    return y;
  }
  Tensor forward(const Tensor& x) const { return with_columns_of(x, run(x)); }
  Gradients backward(const Tensor& dy) const { return {run(dy)}; }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where) {
  require(p >= 0 && p < 1, "dropout", "the probability must be in [0, 1), got {}", p);
  bool inside = where.global.dims() == x.dims() && where.start.dims() == x.dims();
  for (int dim = 0; inside && dim < x.dims(); ++dim)
    inside = where.start[dim] >= 0 && where.start[dim] + x.size(dim) <= where.global[dim];
  require(
      inside, "dropout",
      "the tensor {} at {} is no part of a global one {}; expected the place of its elements, for which a tensor that "
      "is whole gives {{.global = x.shape(), .start = zeros}}",
      x.shape(), where.start, where.global);
  if (p == 0) return x;
  Dropout op;
  op.p = p;
  op.seed = seed;
  op.stream = stream;
  op.where = where;
  return apply(op, x);
}

}  // namespace trireme
