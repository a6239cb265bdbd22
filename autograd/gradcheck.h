// gradient_error: compares the gradients of an operation of your own with differences of its values, as
// torch.autograd.gradcheck does.
//
//   const double error = gradient_error([](const std::vector<Tensor>& in) { return snake(in[0], in[1]); },
//                                       {Tensor::randn({3, 4}, 1, 0, DType::f64),
//                                        Tensor::rand({4}, 1, 1, DType::f64)});
//   require(error < 1e-6, "snake", "its gradient differs from differences by {}", error);
//
// Read next: autograd/op.h.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace trireme {

/// The largest difference between a gradient by backward, and (s(x + h) - s(x - h)) / 2h with h = 1e-6, over all
/// elements x of all inputs. s is the sum of the elements of f(inputs), each multiplied by a random number, so that
/// each partial derivative counts. A difference is divided by the larger of 1 and the gradient. For correct gradients
/// of numbers near 1, it is about 1e-9; near a point where f has no derivative, such as 0 for relu, it is large.
///
/// Inputs are f64 tensors, whose elements are not changed. f is called twice for each of them, and must return the same
/// for the same inputs. Throws ExitCode::internal for inputs of another dtype, and for an input without a gradient.
double gradient_error(const std::function<Tensor(const std::vector<Tensor>& inputs)>& f,
                      const std::vector<Tensor>& inputs);

}  // namespace trireme
