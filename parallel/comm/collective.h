// What one collective operation is, as data: its kind, its tensors, and the signature all ranks must agree on. All
// process groups turn their calls into a Collective, check it here, and differ only in how they carry it out.
// Read next: parallel/comm/common/operation_queue.h (when it runs), parallel/comm/threads/group.cpp (how).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "parallel/comm/process_group.h"

namespace trireme::comm {

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  barrier
};
const char* name(CollectiveKind kind);

/// What must be the same on every rank of the group.
struct Signature {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  int root = 0;
  std::int64_t count = 0;            ///< elements of one rank's share: of the smaller tensor if there are two
  SumOrder order = SumOrder::ranks;  ///< any: the transport's library adds

  bool operator==(const Signature&) const = default;
};
std::string to_string(const Signature& signature);  ///< "all_reduce(sum of 1024 f32)", "... f32 in any order)"

struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  Tensor x, y;                  // the arguments of the ProcessGroup member; y undefined if it has none
  std::array<char, 40> site{};  // CallSite::current() where it was launched, for the flight recorder
  SumOrder order = SumOrder::ranks;

  Signature signature(int ranks) const;
};

/// Throws unless the tensors this rank needs are defined, dense, of one dtype, and of matching counts.
void check(const Collective& collective, const ProcessGroup& group);

/// Whether x holds one share per rank ([n, ...]) rather than one.
bool is_split(CollectiveKind kind);

/// Bytes of a rank's x, if it contributes one.
std::size_t contribution_bytes(const Signature& signature, int ranks);

/// "rank 2 (world rank 6), rank 3 (world rank 7)".
std::string list_ranks(const ProcessGroup& group, const std::vector<int>& group_ranks);

/// A process group whose collectives all go through submit().
class CollectiveGroup : public ProcessGroup {
 public:
  Work all_reduce(Tensor x, ReduceOp op, Launch launch, SumOrder order) final;
  Work all_gather(Tensor x, Tensor y, Launch launch) final;
  Work reduce_scatter(Tensor x, Tensor y, Launch launch, SumOrder order) final;
  Work all_to_all(Tensor x, Tensor y, Launch launch) final;
  Work broadcast(Tensor x, int root, Launch launch) final;
  Work reduce(Tensor x, int root, Launch launch) final;
  Work gather(Tensor x, Tensor y, int root, Launch launch) final;
  Work scatter(Tensor x, Tensor y, int root, Launch launch) final;
  void barrier() final;

 protected:
  using ProcessGroup::ProcessGroup;
  virtual Work submit(Collective collective, Launch launch) = 0;
};

/// Calls the member of `group` that the collective names: for groups that wrap another.
Work dispatch(ProcessGroup& group, const Collective& collective, Launch launch);

/// Throws unless x is dense, `peer` is a rank of the group and the tag is not negative.
void check_message(const char* where, const Tensor& x, int peer, int tag, const ProcessGroup& group);

/// Throws unless the list has no rank twice and contains this one; returns this rank's place in it.
int place_in_subgroup(const std::vector<int>& world_ranks, const std::string& name, const ProcessGroup& parent);

/// A group of only this world rank.
std::shared_ptr<ProcessGroup> lone_group(const std::string& name, int world_rank);

}  // namespace trireme::comm
