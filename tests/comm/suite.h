// The checks every kind of process group must pass, run by each rank of a group: under threads by threads_test.cpp,
// under mpirun by mpi_suite.cpp; with their tensors on a device by staged_test.cpp and nccl_test.cpp. A check that
// fails throws, which is what ends the other ranks as well.
#pragma once

#include <fmt/core.h>

#include <stdexcept>

#include "parallel/comm/process_group.h"

namespace trireme::testing {

template <class... Args>
void verify(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) throw std::runtime_error("check failed: " + fmt::format(what, std::forward<Args>(args)...));
}

/// Every collective x every dtype x sizes from none to beyond what any small-message path takes.
void check_collectives(ProcessGroup& group, Device device = Device::cpu);
/// Random floats: the sum has exactly the bits of adding in rank order, each time.
void check_bits(ProcessGroup& group, Device device = Device::cpu);
/// Sums of bf16 are kept in f32 within an operation and rounded once.
void check_bf16_accumulation(ProcessGroup& group, Device device = Device::cpu);
/// Between operations they are bf16: 1 + 4096 times 2^-9 stays 1, where f32 reaches 9. Long: not part of check_all.
void check_bf16_between_operations(ProcessGroup& group);
/// Lazy and background operations, mixed, waited for in odd orders, dropped, and waited for twice.
void check_launches(ProcessGroup& group, Device device = Device::cpu);
/// Messages: both directions at once, order by tag, many before any recv, a rank to itself.
void check_messages(ProcessGroup& group, Device device = Device::cpu);
/// Groups of rows, columns and reversed ranks, overlapping, used at the same time.
void check_subgroups(ProcessGroup& group, Device device = Device::cpu);
/// Every collective gives the bits that `host`, another group of the same ranks, gives on host tensors; what that
/// leaves alone, `group` leaves alone. Random values; `group`'s tensors are on Device::cuda.
void check_same_bits(ProcessGroup& host, ProcessGroup& group);

void check_all(ProcessGroup& group, Device device = Device::cpu);

}  // namespace trireme::testing
