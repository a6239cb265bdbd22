// concat of dense tensors in one pass over the result, which autograd/concat.cpp otherwise makes of copies of slices.
// Read next: memory.cpp.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace trireme::cpu {

/// y = [parts[0], parts[1], ..] along `dim`. All are dense and of one dtype, and y has the shape of the result. The
/// dims before `dim` are divided among threads.
void concat_dense(const std::vector<Tensor>& parts, int dim, const Tensor& y);

}  // namespace trireme::cpu
