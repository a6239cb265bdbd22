// Checks that tensors that should be equal on several ranks are equal. In a --verify run every redistribute compares,
// bit by bit, the tensors that its placements declare the same on all ranks (R and I, and the gradients of I). Every
// step compares summed gradients and their norm before the update, and the copies of parameters and state after it. The
// error names the tensor, two ranks and their first elements that differ: the layer where ranks diverge, not a loss a
// thousand steps later.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace trireme {

/// A hash of shape, dtype and elements, on any device: equal tensors have equal hashes. Uses all threads of the rank,
/// at about the speed of memory.
std::uint64_t hash_of(const Tensor& x);

/// Collective over `group`. Throws ExitCode::desync on all its ranks unless all pass the same shape, dtype and
/// bits.
void require_same(const Tensor& x, ProcessGroup& group, std::string_view what);

}  // namespace trireme
