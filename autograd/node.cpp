#include "autograd/node.h"

#include <utility>

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

Node::~Node() {
  for (std::shared_ptr<Node>& input : inputs_)
    if (input != nullptr) drop(std::move(input));
}

void Node::drop(std::shared_ptr<void> held) {
  thread_local std::vector<std::shared_ptr<void>>* waiting = nullptr;  // of the outer drop()
  if (waiting != nullptr) return waiting->push_back(std::move(held));
  std::vector<std::shared_ptr<void>> rest;
  waiting = &rest;
  for (held.reset(); !rest.empty(); held.reset()) {
    held = std::move(rest.back());
    rest.pop_back();
  }
  waiting = nullptr;
}

Gradients Leaf::backward(const Tensor& gradient, bool /*retain*/) {
  accumulate(gradient);
  return {};
}

void Leaf::accumulate(Tensor gradient) {
  if (!sum().defined()) {
    const MemoryScope scope(MemoryCategory::gradients);
    if (in_f32() && gradient.dtype() != gradient_dtype()) {
      grad_ = cast(gradient, gradient_dtype());
    } else if (gradient.sole_owner() && gradient.fills_storage()) {
      grad_ = std::move(gradient);
      grad_.set_category(MemoryCategory::gradients);
    } else {
      grad_ = clone(gradient);
    }
    return;
  }
  require(grad_.shape() == gradient.shape(), "backward", "a leaf of shape {} received a gradient of shape {}",
          grad_.shape(), gradient.shape());
  if (consume_beta() == 0)
    return kernels(grad_.device()).copy(gradient, grad_);  // and not 0 * grad_, which is NaN if grad_ is NaN
  kernels(grad_.device()).axpby(1.0, contiguous(gradient), 1.0, grad_);
}

void Leaf::write_zero() {
  if (std::exchange(stale_, false)) kernels(grad_.device()).fill(grad_, 0);
}

void Leaf::run_hooks() {
  if (++backwards_ < backwards_per_hook_) return;
  backwards_ = 0;
  for (const auto& hook : hooks_) hook();
}

void require_grad(Tensor& x) {
  x.require_defined("require_grad");
  require(is_floating(x.dtype()), "require_grad", "only floating-point tensors have gradients, got {}",
          name(x.dtype()));
  if (x.requires_grad()) {
    require(leaf_of(x) != nullptr, "require_grad",
            "the tensor {} is a result of '{}', and would lose its way to what it was made of; expected one that no "
            "recorded operation made; give it x.detach(), or drop the call: gradients flow through results as they are",
            x.shape(), x.node()->name());
    return;
  }
  const auto leaf = std::make_shared<Leaf>(x.dtype());
  leaf->set_shape(x.shape());
  x.set_node(leaf);
}

Tensor Node::repeat() const { fail(ExitCode::internal, name_, "its output cannot be repeated from what it saved"); }

bool RepeatCheapInputs::active() { return repeating; }
RepeatCheapInputs::RepeatCheapInputs(bool on) : previous_(std::exchange(repeating, on)) {}
RepeatCheapInputs::~RepeatCheapInputs() { repeating = previous_; }

Leaf* leaf_of(const Tensor& x) { return dynamic_cast<Leaf*>(x.node().get()); }

Tensor grad(const Tensor& x) {
  Leaf* leaf = leaf_of(x);
  require(
      leaf != nullptr, "grad",
      "the tensor {} is not a leaf{}; expected one that was given to require_grad() before it was used; to update a "
      "leaf, write to it inside NoGrad: an assignment makes it another tensor",
      x.shape(), x.requires_grad() ? fmt::format(" but a result of '{}'", x.node()->name()) : "");
  return leaf->grad();
}

bool grad_enabled() { return recording; }
NoGrad::NoGrad() : previous_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = previous_; }
EnableGrad::EnableGrad() : previous_(std::exchange(recording, true)) {}
EnableGrad::~EnableGrad() { recording = previous_; }

}  // namespace trireme
