// A process group over an MPI communicator. See mpi/group.cpp for the collectives, mpi/messages.cpp for send, recv and
// subgroups.
#pragma once

#include "parallel/comm/common/operation_queue.h"
#include "parallel/comm/mpi/pieces.h"
#include "parallel/comm/mpi/runtime.h"

namespace trireme::comm::mpi {

/// Options that a group and its subgroups share.
struct MpiCallOptions {
  SumOrder fastest = SumOrder::ranks;  ///< any: MPI itself makes the sums for which the caller allows it
  std::int64_t most = most_per_call;   ///< elements in one MPI call
};

class MpiGroup final : public CollectiveGroup, public std::enable_shared_from_this<MpiGroup> {
 public:
  /// `instance`: a number that is the same on all members, and different from that of their other groups.
  MpiGroup(MPI_Comm communicator, const std::string& name, int rank, std::vector<int> members, std::uint64_t instance,
           const MpiCallOptions& call_options);
  ~MpiGroup() override;

  SumOrder fastest_order() const override { return call_options_.fastest; }
  void abandon() override;
  Work send(Tensor x, int to, int tag) override;
  Work send_final(Tensor x, int to, int tag) override;
  Work recv(Tensor y, int from, int tag) override;
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override;

  /// Reports a failure after which no rank can go on.
  [[noreturn]] void lose(ExitCode code, const char* where, const std::string& what);

 protected:
  Work submit(Collective collective, Launch launch) override;

 private:
  struct Call;  // the operation under way

  void run(const Collective& collective, std::uint64_t sequence);
  void carry_out(Call& call);
  bool mpi_adds(const Call& call) const;
  void all_reduce_by_mpi(Call& call);
  void reduce_scatter_by_mpi(Call& call);
  void all_reduce_small(Call& call);
  void reduce_in_pieces(Call& call);
  void reduce_scatter_in_pieces(Call& call);
  void move(Call& call);
  void broadcast_in_pieces(Call& call);
  void move_piece(Call& call, const Piece& piece, int shares, MPI_Datatype share);
  template <class Use>
  void with_part_of_rows(const Call& call, std::int64_t part, const Use& use);
  void sum_buffer(const Call& call, std::int64_t row, std::byte* to);  // of the rows of the buffer
  template <class Start>
  void finish(const Call& call, const Start& start);
  void look_for_desync(const Call& call);
  std::vector<int> missing(const Call& call) const;
  std::optional<NodeBoard::Entry> shown(int group_rank, int& line) const;  // by the board

  Runtime& runtime_;
  MPI_Comm communicator_;
  std::uint64_t instance_;
  const MpiCallOptions call_options_;
  int line_;                      // on the board
  std::vector<int> peers_lines_;  // by rank: where the board has theirs
  OperationQueue queue_;          // last member: its thread ends first
};

}  // namespace trireme::comm::mpi
