// Shared by the tests of process groups for GPU tensors.
#pragma once

#include "core/tensor.h"
#include "tests/support/errors.h"

namespace trireme::testing {

inline Tensor on_device(const Shape& shape, double value) { return Tensor::full(shape, value).to(Device::cuda); }

}  // namespace trireme::testing
