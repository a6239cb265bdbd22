// Rotary positions: attention scores come to depend on the distance between two tokens only.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// Per pair (a, b) = (x[i], x[i + Dh/2]) and angle w = positions[t] base^(-2 i / Dh):
/// y = (a cos w - b sin w, b cos w + a sin w);  dx = dy rotated by -w
struct Rope : Op {
  static constexpr const char* name = "rope";
  Tensor positions;  // [T]
  double base = 10000;

  Tensor turned(const Tensor& x, bool inverse) const {
    const Tensor dense = contiguous(x);
    Tensor y = empty_like(dense);
    kernels(x.device()).rope(dense, positions, base, inverse, y);
    return y;
  }
  Tensor forward(const Tensor& x) const { return turned(x, false); }
  Gradients backward(const Tensor& dy) const { return {turned(dy, true)}; }
};

}  // namespace

Tensor rope(const Tensor& x, const Tensor& positions, double base) {
  require(x.dims() == 4 && x.size(3) % 2 == 0, "rope", "expected x [B, T, H, Dh] with an even Dh, got {}", x.shape());
  require(positions.dtype() == DType::i32 && positions.shape() == Shape{x.size(1)}, "rope",
          "x {} needs positions [{}] i32, got {} {}", x.shape(), x.size(1), positions.shape(), name(positions.dtype()));
  Rope op;
  op.positions = contiguous(positions).to(x.device());
  op.base = base;
  return apply(std::move(op), x);
}

}  // namespace trireme
