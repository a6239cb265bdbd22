#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

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
  Tensor forward(const Tensor& x) const { return run(x); }
  Gradients backward(const Tensor& dy) const { return {run(dy)}; }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, std::uint64_t seed, std::uint64_t stream, const Rectangle& where) {
  require(p >= 0 && p < 1, "dropout", "the probability must be in [0, 1), got {}", p);
  if (p == 0) return x;
  Dropout op;
  op.p = p;
  op.seed = seed;
  op.stream = stream;
  op.where = where;
  return apply(op, x);
}

}  // namespace trireme
