// Tutorial 1: tensors and gradients.
//
//   build/bin/tutorial_tensors
//
// Read next: examples/tutorials/spiral.cpp.
#include <fmt/core.h>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

int tutorial() {
  // A tensor is storage plus a shape. Views share the storage, so no element is copied here.
  const float values[] = {1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::from(std::span<const float>(values), {2, 3});
  const Tensor columns = view::transpose(x, 0, 1);  // [3, 2]
  fmt::print("x {} strides {}, transposed {} strides {}\n", to_string(x.shape()), to_string(x.strides()),
             to_string(columns.shape()), to_string(columns.strides()));

  // Operations broadcast. They are recorded if an input requires a gradient.
  Tensor w = Tensor::full({3}, 0.5);
  require_grad(w);
  const Tensor loss = sum(square(x * w));  // sum over i, j of (x_ij w_j)^2
  fmt::print("loss {}, made by '{}'\n", loss.item(), loss.node()->name());

  // backward walks the recorded operations from the newest to the oldest. By hand: d/dw_j = 2 w_j sum_i x_ij^2.
  backward(loss);
  for (int j = 0; j < 3; ++j) {
    const double by_hand = 2 * 0.5 * (values[j] * values[j] + values[3 + j] * values[3 + j]);
    fmt::print("dloss/dw[{}] = {}, by hand {}\n", j, view::select(grad(w), 0, j).item(), by_hand);
    if (view::select(grad(w), 0, j).item() != by_hand) return 1;
  }

  // Inside NoGrad nothing is recorded. Use it to change weights, and to run a trained model.
  const NoGrad guard;
  const Tensor better = w - grad(w) * 0.01;
  fmt::print("after one step of gradient descent the loss is {}\n", sum(square(x * better)).item());
  return sum(square(x * better)).item() < loss.item() ? 0 : 1;
}

}  // namespace

int main() { return run_program(tutorial); }  // prints any error
