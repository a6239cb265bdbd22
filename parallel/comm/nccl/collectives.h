// NcclCollectives: what each collective queues in a group's stream. nccl/group.h describes the two ways to sum.
// Read next: parallel/comm/nccl/collectives.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::comm {

/// Made for each operation, of a communicator and a stream that outlive it. Its functions return once NCCL has queued
/// their calls; the caller records events around them.
class NcclCollectives {
 public:
  /// `wait_until_ready` waits until NCCL accepts the next call. Its argument is the name of the last one, for messages.
  NcclCollectives(const ProcessGroup& group, NcclApi& api, NcclApi::Comm comm, NcclApi::Stream stream,
                  std::function<void(const std::string&)> wait_until_ready)
      : size_(group.size()),
        rank_(group.rank()),
        api_(api),
        comm_(comm),
        stream_(stream),
        wait_until_ready_(std::move(wait_until_ready)) {}

  /// [ranks, count or chunk]: the memory that a sum in rank order needs beside the collective's tensors. Undefined if
  /// it needs none. Kernels launched earlier may still use this memory, so the stream must wait for them.
  Tensor sum_buffer(const Signature& s) const;
  /// `buffer`: sum_buffer(s).
  void run(const Collective& c, const Signature& s, const Tensor& buffer);
  /// Queues one of each kind of NCCL's operations that `order` uses, so that NCCL connects the ranks. `bytes`:
  /// [3, ranks] u8, on the device.
  void run_each_kind(const Tensor& bytes, SumOrder order);

 private:
  /// What is sent to one rank and what is received from it.
  struct PeerBuffers {
    const std::byte* out = nullptr;
    std::size_t out_bytes = 0;
    std::byte* in = nullptr;
    std::size_t in_bytes = 0;
  };

  void sum_by_nccl(const Collective& c, const Signature& s);
  void all_reduce(const Collective& c, const Signature& s, const Tensor& rows);
  void reduce(const Collective& c, const Signature& s, const Tensor& rows);
  void move_parts(const Collective& c, const Signature& s);
  void exchange(const std::vector<PeerBuffers>& by_rank);
  void gather_all(const std::byte* x, std::byte* y, std::size_t bytes);
  std::int64_t gather_chunks(const std::byte* x, const Signature& s, std::byte* rows);
  void combine(const Signature& s, const Tensor& rows, std::int64_t count, std::byte* to);

  const int size_, rank_;
  NcclApi& api_;
  NcclApi::Comm comm_;
  NcclApi::Stream stream_;
  std::function<void(const std::string&)> wait_until_ready_;
};

}  // namespace trireme::comm
