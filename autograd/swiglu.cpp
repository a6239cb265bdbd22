// The gated unit of Llama's MLP.
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
    Tensor dx = x.sole_owner() ? x : empty_like(x);
    kernels(x.device()).swiglu_backward(x, as_rows(dy), dx);
    return {view::reshape(dx, input_shape)};
  }
};

}  // namespace

Tensor swiglu(const Tensor& x) {
  require(x.dims() >= 1 && x.size(-1) % 2 == 0, "swiglu", "expected x [.., 2 F], got {}", x.shape());
  return apply(SwiGlu{}, x);
}

}  // namespace trireme
