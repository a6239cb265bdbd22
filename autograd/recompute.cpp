// Trading time for memory (Chen et al. 2016): forward keeps only its input, backward runs it again to get the rest.
#include "autograd/engine.h"
#include "autograd/op.h"
#include "autograd/ops.h"

namespace trireme {
namespace {

/// y = f(x);  dx: record f on x.detach(), and run backward through it. Gradients of what f captures reach their leaves
/// there.
struct Recompute : Op {
  static constexpr const char* name = "recompute";
  std::function<Tensor(const Tensor&)> f;
  std::optional<DType> products;  // of the Autocast around the call
  Tensor x;

  Tensor forward(const Tensor& input) {
    x = input;
    const Autocast as_called(products);
    return f(input);
  }
  Gradients backward(const Tensor& dy) const {
    Tensor again = x.detach();
    require_grad(again);
    if (in_f32(0)) add_in_f32(*leaf_of(again));
    {
      const EnableGrad guard;
      const Tensor y = forward_again(again);
      require(y.requires_grad(), name,
              "no gradient flows from the result {} of the function: it depends neither on its argument nor on a "
              "parameter, or was detached; expected a result of recorded operations",
              y.shape());
      trireme::backward(y, dy);
    }
    return {grad(again)};
  }
  // Without recomputation, contributions to a gradient in f32 are added without rounding them to 16 bits.
  void add_in_f32(Leaf& leaf) const {
    leaf.set_grad(Tensor::empty(x.shape(), accumulate_dtype(x.dtype()), x.device()));
    leaf.mark_zero();
  }
  Tensor forward_again(const Tensor& again) const {
    const Autocast as_called(products);
    return f(again);
  }
};

}  // namespace

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  require(f != nullptr, Recompute::name, "the function is empty; expected one that can be called");
  x.require_defined(Recompute::name);
  Recompute op;
  op.f = f;
  op.products = Autocast::current();
  if (grad_enabled() && !x.requires_grad()) {  // what f captures may still need gradients
    Tensor recorded = x.detach();
    require_grad(recorded);
    return apply(std::move(op), recorded);
  }
  return apply(std::move(op), x);
}

}  // namespace trireme
