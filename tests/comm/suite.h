// The checks that every kind of process group must pass. Each rank of a group runs them: threads in threads_test.cpp,
// processes under mpirun in mpi_suite.cpp and nccl_suite.cpp; with tensors on a device in staged_test.cpp and
// nccl_test.cpp. A failed check throws, which also ends the other ranks.
#pragma once

#include <fmt/core.h>

#include <stdexcept>

#include "parallel/comm/process_group.h"

namespace trireme::testing {

template <class... Args>
void verify(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) throw std::runtime_error("check failed: " + fmt::format(what, std::forward<Args>(args)...));
}

/// Every collective x every dtype x sizes from 0 to more than any path for small messages takes.
void check_collectives(ProcessGroup& group, Device device = Device::cpu);
/// Random floats: every sum has exactly the bits of adding in rank order.
void check_bits(ProcessGroup& group, Device device = Device::cpu);
/// Sums of bf16 are kept in f32 within an operation and rounded once.
void check_bf16_accumulation(ProcessGroup& group, Device device = Device::cpu);
/// Between operations they are bf16: 1 + 4096 times 2^-9 stays 1, where f32 reaches 9. Slow: not part of check_all.
void check_bf16_between_operations(ProcessGroup& group);
/// Lazy and background operations, mixed, waited for out of order, dropped, and waited for twice.
void check_launches(ProcessGroup& group, Device device = Device::cpu);
/// Messages: both directions at once, order by tag, many before any recv, a rank to itself.
void check_messages(ProcessGroup& group, Device device = Device::cpu);
/// Groups of rows, columns and reversed ranks, overlapping, used at the same time.
void check_subgroups(ProcessGroup& group, Device device = Device::cpu);
/// Every collective of `group` gives the bits that `host`, another group of the same ranks, gives on host tensors, and
/// leaves the same elements unchanged. Values are random; the tensors of `group` are on Device::cuda.
void check_same_bits(ProcessGroup& host, ProcessGroup& group);
/// Sums in any order: within rounding of the exact ones, the same bits on all ranks and when repeated.
void check_any_order(ProcessGroup& group, Device device = Device::cpu);
/// Whether a sum with this order has the bits of one in rank order.
bool sums_in_rank_order(ProcessGroup& group, SumOrder order, Device device = Device::cpu);

void check_all(ProcessGroup& group, Device device = Device::cpu);

}  // namespace trireme::testing
