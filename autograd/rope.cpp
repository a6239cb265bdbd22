// Rotary positions: attention scores come to depend on the distance between two tokens only.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// Per pair (a, b) = (x[i], x[i + Dh/2]) or (x[2 i], x[2 i + 1]), and angle w = positions[t] frequency[i]:
/// y = (a cos w - b sin w, b cos w + a sin w);  dx = dy rotated by -w
struct Rope : Op {
  static constexpr const char* name = "rope";
  Tensor positions;  // [T] or [B, T]
  RopeOptions options;

  Tensor turned(const Tensor& x, bool inverse) const {
    const Tensor dense = contiguous(x);
    Tensor y = empty_like(dense);
    kernels(x.device()).rope(dense, positions, options, inverse, y);
    return y;
  }
  Tensor forward(const Tensor& x) const { return turned(x, false); }
  Gradients backward(const Tensor& dy) const { return {turned(dy, true)}; }
};

}  // namespace

Tensor rope(const Tensor& x, const Tensor& positions, const RopeOptions& options) {
  x.require_defined("rope");
  positions.require_defined("rope");
  require(x.dims() == 4 && x.size(3) % 2 == 0, "rope", "expected x [B, T, H, Dh] with an even Dh, got {}", x.shape());
  const Shape each = {x.size(0), x.size(1)};
  require(positions.dtype() == DType::i32 && (positions.shape() == Shape{x.size(1)} || positions.shape() == each),
          "rope", "x {} needs positions [{}] or {} i32, got {} {}", x.shape(), x.size(1), each, positions.shape(),
          name(positions.dtype()));
  const Tensor& f = options.frequencies;
  require(f.defined() || options.base > 0, "rope", "a base of {}; expected above 0", options.base);
  require(!f.defined() || (f.dtype() == DType::f64 && f.shape() == Shape{x.size(3) / 2}), "rope",
          "x {} needs frequencies [{}] f64, got {} {}", x.shape(), x.size(3) / 2, f.shape(), name(f.dtype()));
  Rope op;
  op.positions = contiguous(positions).to(x.device());
  op.saved.add(op.positions, "positions");
  op.options = options;
  if (f.defined()) op.options.frequencies = contiguous(f).to(x.device());
  return apply(std::move(op), x);
}

}  // namespace trireme
