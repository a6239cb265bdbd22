// How an operation gets onto the tape.
//
// An operation is one struct with `forward` and `backward` next to each other; its fields are its attributes and what
// forward saves for backward:
//
//   /// y = x^2;  dx = 2 x dy
//   struct Square : Op {
//     static constexpr const char* name = "square";
//     Tensor x;
//     Tensor forward(const Tensor& input) { x = input; return ...; }
//     Gradients backward(const Tensor& dy) { return {...}; }
//   };
//   Tensor square(const Tensor& x) { return apply(Square{}, x); }
//
// forward and backward run with recording off and see tensors without a tape. An input that forward saves costs nothing
// when no gradient is needed: the struct is dropped at once. An operation whose output is cheap to recompute from what
// it saves may have a third function, `Tensor repeat() const`: see SavedInput.
//
// An operation that sums rows into the gradient of input i returns it in gradient_dtype(i, ..), which is f32 for a
// parameter: see "wide" in autograd/node.h. An operation with `static constexpr bool keeps_wide = true` passes this on:
// its output is wide if its inputs are, and its backward must then take a dy in f32, although forward had another
// dtype.
// Read next: autograd/ops.h.
#pragma once

#include <memory>
#include <utility>

#include "autograd/node.h"

namespace trireme {

struct Op {
  /// Bit i: input i needs a gradient. Set before forward; backward may skip the others.
  std::uint32_t needed = 0;
  bool needs(int input) const { return (needed >> input & 1U) != 0; }
  /// Bit i: the gradient of input i is wide (autograd/node.h). Set before forward.
  std::uint32_t wide_inputs = 0;
  bool wide(int input) const { return (wide_inputs >> input & 1U) != 0; }
  /// The dtype in which backward makes the gradient of an input of this dtype.
  DType gradient_dtype(int input, DType dtype) const { return wide(input) ? accumulate_dtype(dtype) : dtype; }

  /// The inputs' leaves (null for an input that is not a leaf). With them, the product that computes a weight gradient
  /// can add it to the leaf itself, through add_weight_gradient() (autograd/deferred.h). An operation that does so
  /// returns an undefined gradient for that input.
  std::vector<Leaf*> leaves;
  /// The nodes that made the inputs, while RepeatCheapInputs is active; else empty.
  std::vector<std::shared_ptr<Node>> producers;
};

/// An input that backward needs: a reference to it, or to the node that can recompute it.
class SavedInput {
 public:
  SavedInput() = default;
  SavedInput(const Op& op, std::size_t input, const Tensor& x) {
    const bool repeat =
        input < op.producers.size() && op.producers[input] != nullptr && op.producers[input]->cheap_to_repeat();
    if (repeat) {
      producer_ = op.producers[input];
    } else {
      kept_ = x;
    }
  }
  Tensor get() const { return producer_ != nullptr ? producer_->repeat() : kept_; }

 private:
  Tensor kept_;
  std::shared_ptr<Node> producer_;
};

namespace detail {

template <class O>
class OpNode final : public Node {
 public:
  OpNode(O op, DType dtype)
      : Node(O::name, dtype),
        wide_(keeps_wide && (op.needed & ~op.wide_inputs) == 0),
        op_(std::make_unique<O>(std::move(op))) {}
  bool wide() const override { return wide_; }
  Gradients backward(const Tensor& gradient) override {
    require(op_ != nullptr, O::name, "backward ran twice over the same graph; run forward again");
    return op_->backward(gradient);
  }
  void release() override { op_.reset(); }
  bool cheap_to_repeat() const override {
    if constexpr (requires(const O& op) { op.repeat(); }) {
      if constexpr (requires(const O& op) { op.cheap_to_repeat(); }) return op_->cheap_to_repeat();
      return true;
    }
    return false;
  }
  Tensor repeat() const override {
    if constexpr (requires(const O& op) { op.repeat(); }) {
      const NoGrad guard;
      return op_->repeat().detach();
    } else {
      return Node::repeat();
    }
  }

 private:
  static constexpr bool keeps_wide = [] {
    if constexpr (requires { O::keeps_wide; }) return O::keeps_wide;
    return false;
  }();
  bool wide_;
  std::unique_ptr<O> op_;
};

}  // namespace detail

/// Runs op.forward(inputs...) and records it when an input needs a gradient.
template <class O, class... Inputs>
Tensor apply(O op, const Inputs&... inputs) {
  std::uint32_t bit = 0;
  const bool recording = grad_enabled();
  ((op.needed |= static_cast<std::uint32_t>(recording && inputs.requires_grad()) << bit++), ...);
  if (op.needed == 0) {
    const NoGrad guard;
    return op.forward(inputs.detach()...).detach();
  }
  bit = 0;
  ((op.wide_inputs |= static_cast<std::uint32_t>(inputs.requires_grad() && inputs.node()->wide()) << bit++), ...);
  (op.leaves.push_back(leaf_of(inputs)), ...);
  if (RepeatCheapInputs::active()) (op.producers.push_back(inputs.node()), ...);
  Tensor output;
  {
    const NoGrad guard;
    output = op.forward(inputs.detach()...).detach();
  }
  auto node = std::make_shared<detail::OpNode<O>>(std::move(op), output.dtype());
  (node->inputs().push_back(inputs.node()), ...);
  output.set_node(std::move(node));
  return output;
}

}  // namespace trireme
