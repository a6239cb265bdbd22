// The tape: one Node per recorded operation, pointing at the nodes that made its inputs.
//
// Every operation has exactly one output, so a Node stands for a tensor and collects one gradient. Nodes carry
// a sequence number that grows in program order; the engine (autograd/engine.h) runs them from the newest to the
// oldest, so backward visits operations, and therefore starts collectives, in the exact reverse order of forward.
//
// A gradient has its tensor's dtype, with one exception: some are kept in f32 although the tensor has 16 bits. These
// are the gradients of parameters, and of tensors that slices, reshapes, sums and elementwise operations compute from
// parameters alone (`keeps_f32` in autograd/op.h). Such a gradient is a sum over all rows of a batch. In f16 the number
// of rows in a micro-batch would decide whether that sum overflows and the step is skipped. The gradients of
// activations keep 16 bits: a row's gradient is the same in any batch.
// Read next: autograd/op.h (how an operation gets onto the tape), then autograd/engine.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace trireme {

/// The gradients that an operation's backward returns, one per input, in order; undefined where none is needed.
using Gradients = std::vector<Tensor>;

/// A line of the caller's source: of a default argument `SourceLine at = SourceLine::here()`.
struct SourceLine {
  const char* file = "";
  int line = 0;
  /// The line of the caller, as a default argument.
  static SourceLine here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// A recorded operation, or a leaf: see the top of this file.
class Node {
 public:
  Node(const char* name, DType dtype);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Gradients of the inputs, given the gradient of the output. `retain`: backward may run again.
  virtual Gradients backward(const Tensor& gradient, bool retain) = 0;
  virtual void release() {}  ///< drop what forward saved; backward cannot run again
  /// Whether forward saved nothing, and later backwards may go through this node without retain_graph.
  virtual bool saves_nothing() const { return false; }
  /// Whether the output is cheap to recompute from what is saved anyway. repeat() recomputes it, with the same bits.
  virtual bool cheap_to_repeat() const { return false; }
  /// Recomputes the output from what is saved. Throws ExitCode::internal if cheap_to_repeat() is false.
  virtual Tensor repeat() const;

  /// Whether the gradient is kept in f32 (f64 for f64) whatever the tensor's dtype: see above.
  virtual bool in_f32() const = 0;
  /// The gradient's dtype.
  DType gradient_dtype() const { return in_f32() ? accumulate_dtype(dtype_) : dtype_; }

  /// The shape of the tensor, and of its gradient; empty for a node that was not made by recording or require_grad().
  const std::optional<Shape>& shape() const { return shape_; }
  /// See shape().
  void set_shape(const Shape& shape) { shape_ = shape; }

  const char* name() const { return name_; }
  std::uint64_t sequence() const { return sequence_; }
  std::vector<std::shared_ptr<Node>>& inputs() { return inputs_; }  ///< null where an input needs no gradient
  /// Who called the backward that released this node.
  const SourceLine& backward_line() const { return backward_line_; }
  /// For the message of a second backward.
  void set_backward_line(const SourceLine& line) { backward_line_ = line; }

 protected:
  /// For destructors: releases what a node held. Called inside another drop(), it leaves that to the outer one, so
  /// that freeing a long graph needs no deep stack.
  static void drop(std::shared_ptr<void> held);

 private:
  const char* name_;
  DType dtype_;  // of the tensor
  std::uint64_t sequence_;
  std::optional<Shape> shape_;
  SourceLine backward_line_;
  std::vector<std::shared_ptr<Node>> inputs_;
};

/// Where a gradient ends: a parameter, or any other tensor given to require_grad().
class Leaf : public Node, public std::enable_shared_from_this<Leaf> {
 public:
  explicit Leaf(DType dtype) : Node("leaf", dtype) {}
  Gradients backward(const Tensor& gradient, bool retain) override;
  /// Adds one contribution to grad(). If it is the first, and no other tensor has its storage, it becomes grad().
  void accumulate(Tensor gradient);

  /// The gradient so far; undefined before the first. A parameter sets an f32 tensor of zeros here (a view into a
  /// communication bucket), and gradients of any floating dtype are added to it in f32.
  Tensor& grad() {
    write_zero();
    return sum();
  }
  /// f32, or the tensor's dtype; it collects gradients from here on.
  void set_grad(Tensor gradient) {
    given_ = gradient.defined();
    grad_ = std::move(gradient);
    stale_ = false;
  }
  /// The gradient so far, if it has this dtype; then grad() is undefined until the next contribution, which must include
  /// it. That of a parameter, a tensor of set_grad(), or one that others hold, is not given away.
  Tensor take_gradient(DType dtype) {
    const bool own = !is_parameter_ && !given_ && !source_ && grad_.defined() && grad_.sole_owner();
    return own && grad_.dtype() == dtype ? std::exchange(grad_, {}) : Tensor();
  }
  /// From here on the gradient counts as zero, although its elements are unchanged: the next contribution overwrites
  /// them, which saves two passes over memory. write_zero() writes the zeros if nothing was added; grad() calls it.
  void mark_zero() { stale_ = grad_.defined(); }
  /// Writes the zeros that mark_zero() has promised, if nothing was added since.
  void write_zero();
  /// For operations that add to the gradient themselves. sum(): the tensor to add to, possibly undefined.
  /// consume_beta(): the factor for its present elements, 0 after mark_zero(), else 1. A caller that takes beta must
  /// write every element immediately.
  Tensor& sum() {
    if (!grad_.defined() && source_) source_();
    return grad_;
  }
  /// The factor for the present elements of sum(); see sum().
  double consume_beta() { return std::exchange(stale_, false) ? 0 : 1; }
  /// `source` is called when the gradient is needed but undefined, and must set it: for gradients that have memory only
  /// while something is added to them.
  void set_grad_source(std::function<void()> source) { source_ = std::move(source); }
  /// Called when all contributions of one backward have been added: where communication starts.
  void on_grad_ready(std::function<void()> hook) { hooks_.push_back(std::move(hook)); }
  /// Removes the functions of on_grad_ready().
  void clear_hooks() { hooks_.clear(); }
  /// Hooks run after every `count`-th backward that reaches this leaf: for a weight that `count` stages on one rank
  /// use.
  void run_hooks_after(int count) { backwards_per_hook_ = count; }
  void run_hooks();  ///< to be called when a backward has added all of its contributions

  /// Whether it is a parameter: its gradient is kept in f32, and may be deferred inside DeferWeightGradients. The input
  /// of a stage is a leaf too, but its gradient is neither.
  bool is_parameter() const { return is_parameter_; }
  /// Its gradient is kept in f32 from here on.
  void set_parameter() { is_parameter_ = true; }
  /// Also true if set_grad() was given a tensor in f32.
  bool in_f32() const override { return is_parameter_ || (grad_.defined() && size_of(grad_.dtype()) >= sizeof(float)); }

 private:
  Tensor grad_;
  std::function<void()> source_;
  std::vector<std::function<void()>> hooks_;
  int backwards_per_hook_ = 1, backwards_ = 0;
  bool is_parameter_ = false, stale_ = false;
  bool given_ = false;  // grad_, by set_grad()
};

/// Makes `x` a leaf of the tape: gradients that reach it are collected in grad(x). A leaf stays as it is. Throws for
/// the result of a recorded operation.
void require_grad(Tensor& x);
Leaf* leaf_of(const Tensor& x);  ///< null when x is not a leaf
Tensor grad(const Tensor& x);    ///< of a leaf; undefined when none has arrived

/// Whether the calling thread records operations.
bool grad_enabled();
/// While it lives, operations that the calling thread records save no copy of an input that is cheap to repeat
/// (Node::cheap_to_repeat): backward recomputes it. Selective recomputation, Korthikanti et al. 2022, section 5.
class RepeatCheapInputs {
 public:
  /// `on`: false saves copies as usual, also inside another scope.
  [[nodiscard]] explicit RepeatCheapInputs(bool on = true);
  ~RepeatCheapInputs();
  RepeatCheapInputs(const RepeatCheapInputs&) = delete;
  RepeatCheapInputs& operator=(const RepeatCheapInputs&) = delete;
  static bool active();  ///< whether one lives on the calling thread

 private:
  bool previous_;
};

/// While it lives, the calling thread records nothing. It needs a name: `const NoGrad guard;`.
class NoGrad {
 public:
  [[nodiscard]] NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};
/// While it lives, the calling thread records even inside a NoGrad. Recomputation uses it to record what forward did
/// not.
class EnableGrad {
 public:
  [[nodiscard]] EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};

}  // namespace trireme
