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
  Tensor x;

  Tensor forward(const Tensor& input) {
    x = input;
    return f(input);
  }
  Gradients backward(const Tensor& dy) const {
    Tensor again = x.detach();
    require_grad(again);
    {
      const EnableGrad guard;
      const Tensor y = f(again);
      trireme::backward(y, dy);
    }
    return {grad(again)};
  }
};

}  // namespace

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Recompute op;
  op.f = f;
  if (grad_enabled() && !x.requires_grad()) {  // what f captures may still need gradients
    Tensor recorded = x.detach();
    require_grad(recorded);
    return apply(std::move(op), recorded);
  }
  return apply(std::move(op), x);
}

}  // namespace trireme
