// The backward pass.
// Read next: autograd/engine.cpp.
#pragma once

#include "core/tensor.h"

namespace trireme {

/// Adds d(root)/d(leaf) * gradient to the grad of every leaf below `root`, and releases what forward saved. `gradient`
/// has root's shape; left out, root must hold one element and 1 is used. Inside DeferWeightGradients
/// (autograd/deferred.h) the gradients of weights may follow later.
void backward(const Tensor& root, const Tensor& gradient = {});

/// Whether the calling thread is inside a backward pass; a forward that runs there is a recomputation.
bool in_backward();

}  // namespace trireme
