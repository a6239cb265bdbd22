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
// forward and backward run with recording and Autocast off, and see tensors without a tape. An input that forward
// saves costs nothing when no gradient is needed: the struct is dropped at once. If an input or the output that
// forward saves is written to before backward, backward throws (autograd/saved_versions.h); `saved.add(ids, "ids")`
// says the same of a tensor that is not an input. Backward may overwrite or drop what forward saved only if `retained`
// is false. An operation whose output is cheap to recompute from what it saves may have a third function, `Tensor
// repeat() const`: see SavedInput.
//
// An operation that sums rows into the gradient of input i returns it in gradient_dtype(i, ..), which is f32 for a
// parameter: see autograd/node.h. An operation with `static constexpr bool keeps_f32 = true` passes this on: the
// gradient of its output is f32 if those of its inputs are, and its backward must then take a dy in f32, although
// forward had another dtype.
//
// The gradients of a tensor that several operations use are added, which takes a pass over memory. A backward whose
// kernel can do that on the way takes the sum so far: take_gradient_so_far() in autograd/engine.h.
// Read next: autograd/ops.h.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/node.h"
#include "autograd/saved_versions.h"

namespace trireme {

/// The base of operations: what forward and backward may ask for.
/// @snippet tensor_test.cpp operation
struct Op {
  /// Bit i: input i needs a gradient. Set before forward; backward may skip the others.
  std::uint32_t needed = 0;
  bool needs(int input) const { return (needed >> input & 1U) != 0; }  ///< whether input `input` needs a gradient
  /// Bit i: the gradient of input i is f32 (autograd/node.h). Set before forward.
  std::uint32_t f32_inputs = 0;
  /// Whether the gradient of input `input` is f32.
  bool in_f32(int input) const { return (f32_inputs >> input & 1U) != 0; }
  /// The dtype in which backward makes the gradient of an input of this dtype.
  DType gradient_dtype(int input, DType dtype) const { return in_f32(input) ? accumulate_dtype(dtype) : dtype; }

  /// The inputs' leaves (null for an input that is not a leaf). With them, the product that computes a weight gradient
  /// can add it to the leaf itself, through add_weight_gradient() (autograd/deferred.h). An operation that does so
  /// returns an undefined gradient for that input.
  std::vector<Leaf*> leaves;
  /// The nodes that made the inputs, while RepeatCheapInputs is active; else empty.
  std::vector<std::shared_ptr<Node>> producers;
  /// The versions of the tensors that backward needs.
  SavedVersions saved;
  /// Set before backward: it may run again, so it must not overwrite or drop what forward saved.
  bool retained = false;
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
        in_f32_(keeps_f32 && (op.needed & ~op.f32_inputs) == 0),
        op_(std::make_shared<O>(std::move(op))) {}
  ~OpNode() override { drop(std::move(op_)); }
  bool in_f32() const override { return in_f32_; }
  Gradients backward(const Tensor& gradient, bool retain) override {
    require_not_released();
    op_->saved.check(O::name, retain);
    op_->retained = retain;
    return op_->backward(gradient);
  }
  void release() override { op_.reset(); }
  bool saves_nothing() const override {
    if constexpr (requires { O::saves_nothing; }) return O::saves_nothing;
    return false;
  }
  bool cheap_to_repeat() const override {
    if constexpr (requires(const O& op) { op.repeat(); }) {
      if constexpr (requires(const O& op) { op.cheap_to_repeat(); }) return op_->cheap_to_repeat();
      return true;
    }
    return false;
  }
  Tensor repeat() const override {
    if constexpr (requires(const O& op) { op.repeat(); }) {
      require_not_released();
      const NoGrad guard;
      const Autocast as_given(std::nullopt);
      return op_->repeat().detach();
    } else {
      return Node::repeat();
    }
  }

 private:
  void require_not_released() const {
    require(op_ != nullptr, O::name,
            "a second backward over the same graph; the first, at {}:{}, freed what forward had saved; expected one "
            "backward for each forward; run forward again, call backward once for the sum of the losses, or call the "
            "first one with {{.retain_graph = true}}",
            backward_line().file, backward_line().line);
  }

  static constexpr bool keeps_f32 = [] {
    if constexpr (requires { O::keeps_f32; }) return O::keeps_f32;
    return false;
  }();
  bool in_f32_;
  std::shared_ptr<O> op_;
};

/// Adds to op.saved the inputs and the output that forward kept. `owners`: how many tensors shared the storage of each
/// input before forward; there are more if forward kept it.
template <class O, std::size_t n, class... Inputs>
void add_saved(O& op, const std::array<std::int64_t, n>& owners, const Tensor& output, const Inputs&... inputs) {
  int input = 0;
  bool is_view = false;
  const auto add = [&](const Tensor& x) {
    const bool viewed = output.shares_storage_with(x);
    is_view |= viewed;
    op.saved.add_if_kept(x, owners[static_cast<std::size_t>(input)] + (viewed ? 1 : 0), "input", input);
    ++input;
  };
  (add(inputs), ...);
  if (!is_view) op.saved.add_if_kept(output, 1, "its output");
}

}  // namespace detail

/// Runs op.forward(inputs...) and records it when an input needs a gradient.
template <class O, class... Inputs>
Tensor apply(O op, const Inputs&... inputs) {
  std::uint32_t bit = 0;
  const bool recording = grad_enabled();
  ((op.needed |= static_cast<std::uint32_t>(recording && inputs.requires_grad()) << bit++), ...);
  if (op.needed == 0) {
    const NoGrad guard;
    const Autocast as_given(std::nullopt);
    Tensor output = op.forward(inputs.detach()...).detach();
    require(output.defined(), O::name, "the result is undefined; expected a tensor");
    return output;
  }
  bit = 0;
  ((op.f32_inputs |= static_cast<std::uint32_t>(inputs.requires_grad() && inputs.node()->in_f32()) << bit++), ...);
  (op.leaves.push_back(leaf_of(inputs)), ...);
  if (RepeatCheapInputs::active()) (op.producers.push_back(inputs.node()), ...);
  const std::array<std::int64_t, sizeof...(inputs)> owners = {inputs.owners()...};
  Tensor output;
  {
    const NoGrad guard;
    const Autocast as_given(std::nullopt);
    output = op.forward(inputs.detach()...).detach();
  }
  require(output.defined(), O::name, "the result is undefined; expected a tensor");
  detail::add_saved(op, owners, output, inputs...);
  auto node = std::make_shared<detail::OpNode<O>>(std::move(op), output.dtype());
  node->set_shape(output.shape());
  (node->inputs().push_back(inputs.node()), ...);
  output.set_node(std::move(node));
  return output;
}

/// The same for an operation with a list of inputs, forward(const std::vector<Tensor>&). It may keep none of them, and
/// backward returns the gradients of all.
template <class O>
Tensor apply_to_list(O op, const std::vector<Tensor>& inputs) {
  const auto recorded = [on = grad_enabled()](const Tensor& x) { return on && x.requires_grad(); };
  bool any = false, all_f32 = true;
  std::vector<Tensor> values;
  values.reserve(inputs.size());
  for (const Tensor& x : inputs) {
    any |= recorded(x);
    all_f32 &= !recorded(x) || x.node()->in_f32();
    values.push_back(x.detach());
  }
  op.needed = any ? 1 : 0;
  op.f32_inputs = any && all_f32 ? 1 : 0;
  Tensor output;
  {
    const NoGrad guard;
    const Autocast as_given(std::nullopt);
    output = op.forward(values).detach();
  }
  if (!any) return output;
  auto node = std::make_shared<detail::OpNode<O>>(std::move(op), output.dtype());
  node->set_shape(output.shape());
  for (const Tensor& x : inputs) node->inputs().push_back(x.node());
  output.set_node(std::move(node));
  return output;
}

}  // namespace trireme
