// Are tensors that a layout calls equal really equal? In a --verify run every redistribute compares the tensors that
// its placements call the same on all ranks (R and I, and the gradients of I), bit by bit, and every step compares the
// copies of every parameter and of the optimizer's state. A difference names the tensor, two ranks and their first
// elements that differ: the layer where ranks part, not the loss a thousand steps later.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace trireme {

/// A hash of shape, dtype and elements, wherever they are: of equal tensors it is equal. By the rank's threads
/// together, at about the speed of memory.
std::uint64_t hash_of(const Tensor& x);

/// Collective over `group`. Throws ExitCode::desync on all its ranks when they do not all pass the same shape, dtype
/// and bits.
void require_same(const Tensor& x, ProcessGroup& group, std::string_view what);

}  // namespace trireme
