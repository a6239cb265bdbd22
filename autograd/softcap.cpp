// Soft caps of logits: made of kernels, in place of one another's results, so that only the output is kept.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"

namespace trireme {
namespace {

/// y = c tanh(x / c);  dx = dy (1 - (y / c)^2)
///
/// Bytes: three passes over x forward, four backward.
struct SoftCap : Op {
  static constexpr const char* name = "softcap";
  double cap = 1;
  Tensor y;  // dense

  Tensor forward(const Tensor& x) {
    const KernelTable& k = kernels(x.device());
    y = empty_like(x);
    k.axpby(1 / cap, contiguous(x), 0, y);
    k.unary(Unary::tanh, y, y);
    k.axpby(cap, y, 0, y);
    return with_columns_of(x, y);
  }
  Gradients backward(const Tensor& gradient) const {
    const KernelTable& k = kernels(y.device());
    const Tensor dy = contiguous(gradient);
    Tensor dx = empty_like(y);
    k.axpby(1 / cap, y, 0, dx);  // first, so that y^2 does not overflow in f16
    k.binary(Binary::multiply, dx, dx, dx);
    k.binary(Binary::multiply, dx, dy, dx);
    k.axpby(1, dy, -1, dx);
    return {dx};
  }
};

}  // namespace

Tensor softcap(const Tensor& x, double cap) {
  require_floating("softcap", x);
  require(cap > 0, "softcap", "a cap of {}; expected a number above 0", cap);
  SoftCap op;
  op.cap = cap;
  return apply(std::move(op), x);
}

}  // namespace trireme
