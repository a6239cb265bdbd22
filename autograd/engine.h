// The backward pass.
// Read next: autograd/engine.cpp.
#pragma once

#include "autograd/node.h"

namespace trireme {

/// How backward() goes through the graph.
struct BackwardOptions {
  /// Keep what forward saved, for another backward through the same operations. Memory is freed by a backward without
  /// it, or with the last tensor that refers to the graph. Weights must not change in between.
  bool retain_graph = false;
};

/// Adds d(root)/d(leaf) * gradient to the grad of every leaf below `root`, and releases what forward saved. `gradient`
/// has root's shape; left out, root must hold one element and 1 is used. Inside DeferWeightGradients
/// (autograd/deferred.h) the gradients of weights may follow later. A second backward through an operation needs
/// retain_graph in the first, else its message names the line `at` of the first. Throws if a tensor that forward saved
/// was written to since.
/// @snippet tensor_test.cpp backward
void backward(const Tensor& root, const Tensor& gradient = {}, const BackwardOptions& options = {},
              const SourceLine& at = SourceLine::here());
/// The same without a gradient: backward(loss, {.retain_graph = true}).
void backward(const Tensor& root, const BackwardOptions& options, const SourceLine& at = SourceLine::here());

/// Whether the calling thread is inside a backward pass; a forward that runs there is a recomputation.
bool in_backward();

/// For the backward of an operation: the sum so far of the gradients of its input number `input`, from operations that
/// used it later in forward; undefined if there is none of this dtype. Backward then returns that sum plus its own
/// gradient. Throws outside of a backward.
Tensor take_gradient_so_far(std::size_t input, DType dtype);

}  // namespace trireme
