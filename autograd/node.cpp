#include "autograd/node.h"

#include "core/kernels.h"

namespace trireme {
namespace {

thread_local bool recording = true;
thread_local bool repeating = false;

std::uint64_t next_sequence() {
  thread_local std::uint64_t counter = 0;  // a graph belongs to the thread (the rank) that records it
  return ++counter;
}

}  // namespace

Node::Node(const char* name, DType dtype) : name_(name), dtype_(dtype), sequence_(next_sequence()) {}
Node::~Node() = default;

Gradients Leaf::backward(const Tensor& gradient) {
  accumulate(gradient);
  return {};
}

void Leaf::accumulate(const Tensor& gradient) {
  if (!sum().defined()) {
    const MemoryScope scope(MemoryCategory::gradients);
    grad_ = wide() && gradient.dtype() != gradient_dtype() ? cast(gradient, gradient_dtype()) : clone(gradient);
    return;
  }
  require(grad_.shape() == gradient.shape(), "backward", "a leaf of shape {} received a gradient of shape {}",
          grad_.shape(), gradient.shape());
  if (take_beta() == 0)
    return kernels(grad_.device()).copy(gradient, grad_);  // and not 0 * grad_, which is NaN if grad_ is NaN
  kernels(grad_.device()).axpby(1.0, contiguous(gradient), 1.0, grad_);
}

void Leaf::settle() {
  if (std::exchange(stale_, false)) kernels(grad_.device()).fill(grad_, 0);
}

void Leaf::run_hooks() {
  if (++backwards_ < backwards_per_hook_) return;
  backwards_ = 0;
  for (const auto& hook : hooks_) hook();
}

void require_grad(Tensor& x) {
  require(is_floating(x.dtype()), "require_grad", "only floating-point tensors have gradients, got {}",
          name(x.dtype()));
  x.set_node(std::make_shared<Leaf>(x.dtype()));
}

Tensor Node::repeat() const { fail(ExitCode::internal, name_, "its output cannot be repeated from what it saved"); }

bool RepeatCheapInputs::active() { return repeating; }
RepeatCheapInputs::RepeatCheapInputs(bool on) : previous_(std::exchange(repeating, on)) {}
RepeatCheapInputs::~RepeatCheapInputs() { repeating = previous_; }

Leaf* leaf_of(const Tensor& x) { return dynamic_cast<Leaf*>(x.node().get()); }

Tensor grad(const Tensor& x) {
  Leaf* leaf = leaf_of(x);
  require(leaf != nullptr, "grad", "the tensor is not a leaf; call require_grad(x) before it is used");
  return leaf->grad();
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : previous_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = previous_; }
EnableGrad::EnableGrad() : previous_(std::exchange(recording, true)) {}
EnableGrad::~EnableGrad() { recording = previous_; }

}  // namespace trireme
