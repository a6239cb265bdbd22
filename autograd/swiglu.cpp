// The gated units of MLPs: Llama's, and others.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// x = [g, u], s = sigmoid(g):  y = g s u;  dg = dy u s (1 + g (1 - s)), du = dy g s
struct SwiGlu : Op {
  static constexpr const char* name = "swiglu";
  Tensor x;  // [N, 2 F]
  Shape input_shape;

  Tensor forward(const Tensor& input) {
    input_shape = input.shape();
    x = as_rows(input);
    return repeat();
  }
  Tensor repeat() const {
    Tensor y = Tensor::empty({x.size(0), x.size(1) / 2}, x.dtype(), x.device());  // [N, F]
    kernels(x.device()).swiglu(x, y);
    return view::reshape(y, input_shape.with(-1, x.size(1) / 2));
  }
  Gradients backward(const Tensor& dy) const {
    Tensor dx = !retained && x.sole_owner() ? x : empty_like(x);
    kernels(x.device()).swiglu_backward(x, as_rows(dy), dx);
    return {view::reshape(dx, input_shape)};
  }
};

/// x = [g, u], f the function:  y = f(g) u;  dg = dy u f'(g), du = dy f(g)
///
/// Bytes: twice those of a fused kernel, which swiglu has. The MLP's products take most of the time.
struct GatedUnit : Op {
  static constexpr const char* name = "gated_unit";
  Unary gate = Unary::silu;
  Tensor g, u;  // [N, F]; u is a part of the input
  Shape input_shape;

  Tensor forward(const Tensor& input) {
    input_shape = input.shape();
    const Tensor rows = as_rows(input);
    const std::int64_t width = rows.size(1) / 2;
    g = contiguous(view::slice(rows, 1, 0, width));
    u = view::slice(rows, 1, width, width);
    return repeat();
  }
  Tensor repeat() const {
    Tensor y = empty_like(g);
    kernels(g.device()).unary(gate, g, y);
    kernels(g.device()).binary(Binary::multiply, y, u, y);
    return view::reshape(y, input_shape.with(-1, g.size(1)));
  }
  Gradients backward(const Tensor& gradient) const {
    const KernelTable& k = kernels(g.device());
    const Tensor dy = as_rows(gradient);
    Tensor dx = Tensor::empty({g.size(0), 2 * g.size(1)}, g.dtype(), g.device()), part = empty_like(g);
    Tensor dg = view::slice(dx, 1, 0, g.size(1)), du = view::slice(dx, 1, g.size(1), g.size(1));
    k.unary(gate, g, part);
    k.binary(Binary::multiply, part, dy, part);
    k.copy(part, du);
    k.binary(Binary::multiply, dy, u, part);
    k.unary_backward(gate, g, part, part);
    k.copy(part, dg);
    return {view::reshape(dx, input_shape)};
  }
};

}  // namespace

Tensor gated_unit(const Tensor& x, Unary gate) {
  if (gate == Unary::silu) return swiglu(x);
  require(x.dims() >= 1 && x.size(-1) % 2 == 0, "gated_unit", "expected x [.., 2 F], got {}", x.shape());
  GatedUnit op;
  op.gate = gate;
  return apply(std::move(op), x);
}

Tensor swiglu(const Tensor& x) {
  require(x.dims() >= 1 && x.size(-1) % 2 == 0, "swiglu", "expected x [.., 2 F], got {}", x.shape());
  return apply(SwiGlu{}, x);
}

}  // namespace trireme
