// ProcessGroup: an ordered set of ranks that communicate. One interface, three implementations: `self` (one rank),
// `threads` (ranks of one process), `mpi` (ranks of a launcher). They move host memory. Two more groups wrap them for
// tensors on a GPU: `staged` (staged_group.h) and `nccl` (nccl/group.h).
//
// Every rank of a group must call the same operations in the same order. An operation returns a Work that keeps its
// tensors alive; results may be read after wait(). Nothing here is differentiable: parallel/mesh/redistribute.h is, and
// so are the operations of nn/ that communicate inside. Sums are taken in rank order, in f32 for bf16 and f16 (one
// rounding at the end), so that every rank gets the same bits, run after run. `mpi` and `nccl` also have faster sums,
// for callers that allow them: SumOrder.
//
// A lazy operation makes progress only while somebody waits on its group. Waits on lazy
// operations of different groups must therefore come in the same order on the ranks that share those groups, as they
// do when all ranks run the same program; background operations may be waited for in any order.
// Read next: parallel/comm/threads/group.cpp, then parallel/mesh/mesh.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace trireme {

/// What all_reduce() makes of the ranks' elements.
enum class ReduceOp : std::uint8_t { sum, max };

/// How a sum over ranks is made.
///
/// `ranks`: in rank order, 16-bit types in f32 with one rounding at the end. The bits depend on the terms alone: they
/// are the same in every group with equal terms, by every transport.
///
/// `any`: the transport's library adds (NCCL, MPI), in an order of its own. NCCL adds 16-bit types in 16 bits: n - 1
/// roundings instead of one, and partial sums may overflow in f16. All ranks of the group get the same bits, and get
/// them again when the run is repeated on the same machines. Another group with equal terms may get other bits. So a
/// caller allows `any` only if no rank outside the group has to get the same bits: order_of_gradients() in
/// parallel/mesh/placement.h.
enum class SumOrder : std::uint8_t { ranks, any };

/// When an operation runs. `lazy`: in wait(), on the calling thread, which is expected to wait soon; no other thread
/// wakes. `background`: at once, on the rank's communication thread, while the caller computes.
enum class Launch : std::uint8_t { lazy, background };

/// One operation under way. Dropping a Work waits for it. Copies share the operation.
class Work {
 public:
  /// The operation itself; one class for each transport.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;  ///< returns when done; throws what the operation threw; may be called again
    virtual bool done() = 0;  ///< does not block, and does not run a lazy operation
  };

  Work() = default;  ///< already complete
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Returns when the operation is complete; throws what it threw.
  void wait() {
    if (state_) state_->wait();
  }
  bool done() { return !state_ || state_->done(); }  ///< whether it is complete; does not block

 private:
  std::shared_ptr<State> state_;
};

/// Some ranks, and the collectives between them.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  int rank() const { return rank_; }  ///< in this group
  int size() const { return size_; }
  const std::string& name() const { return name_; }  ///< for messages: "world", "tp[pp=0,data=1]", ...
  /// Of a rank of this group. Throws ExitCode::internal for one that it does not have.
  int world_rank(int group_rank) const {
    require(group_rank >= 0 && group_rank < size_, "comm", "'{}' has no rank {}; expected 0 to {}", name_, group_rank,
            size_ - 1);
    return members_[static_cast<std::size_t>(group_rank)];
  }
  const std::vector<int>& members() const { return members_; }  ///< world ranks, in group order

  // All tensors are dense. n = size(). "in place" means the tensor is both input and output.

  /// How this group makes sums for which the caller allows any order.
  virtual SumOrder fastest_order() const { return SumOrder::ranks; }

  /// Every rank gets the elementwise reduction of all ranks' `x`, in place.
  virtual Work all_reduce(Tensor x, ReduceOp op = ReduceOp::sum, Launch launch = Launch::lazy,
                          SumOrder order = SumOrder::ranks) = 0;
  /// y [n, ...x] = the ranks' x, in rank order.
  virtual Work all_gather(Tensor x, Tensor y, Launch launch = Launch::lazy) = 0;
  /// y = sum over ranks of their x[rank()]; x [n, ...y].
  virtual Work reduce_scatter(Tensor x, Tensor y, Launch launch = Launch::lazy, SumOrder order = SumOrder::ranks) = 0;
  /// y[i] = rank i's x[rank()]; x, y [n, ...].
  virtual Work all_to_all(Tensor x, Tensor y, Launch launch = Launch::lazy) = 0;
  /// x of `root` is copied to all, in place.
  virtual Work broadcast(Tensor x, int root, Launch launch = Launch::lazy) = 0;
  /// On `root`: x = sum of all ranks' x, in place; other ranks' x is left as it was.
  virtual Work reduce(Tensor x, int root, Launch launch = Launch::lazy) = 0;
  /// On `root`: y [n, ...x] = the ranks' x; y may be undefined elsewhere.
  virtual Work gather(Tensor x, Tensor y, int root, Launch launch = Launch::lazy) = 0;
  /// y = root's x[rank()]; x [n, ...y] may be undefined except on `root`.
  virtual Work scatter(Tensor x, Tensor y, int root, Launch launch = Launch::lazy) = 0;
  /// Message to / from one rank. Messages between two ranks with one tag arrive in order. x may be changed once the
  /// returned Work is complete. A send completes without waiting for the receiver, which need not have posted its recv.
  /// Messages and collectives are not ordered with each other.
  virtual Work send(Tensor x, int to, int tag) = 0;
  /// As send, for a tensor that nobody will write to any more, so that no copy is needed: rank threads hand over the
  /// memory itself. The receiver sees no difference.
  virtual Work send_final(Tensor x, int to, int tag) { return send(std::move(x), to, tag); }
  /// A message of rank `from`, into y; see send().
  virtual Work recv(Tensor y, int from, int tag) = 0;
  virtual void barrier() = 0;  ///< returns when all ranks of the group have called it
  /// Ends the waits of all ranks, because this one leaves with an error that it reports.
  virtual void abandon() {}
  /// True in a --verify run: see parallel/comm/verifying_group.h.
  virtual bool verifies() const { return false; }

  /// The group of `world_ranks`, in this order, over the same transport; this rank must be among them. Every rank of
  /// the parent that is in the new group calls this with the same list; groups that do not overlap may be made at the
  /// same time.
  virtual std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) = 0;

  /// How long a rank that others wait for may show no sign of life. After that an error names it, the operation and the
  /// group. Waits for a rank that sends heartbeats go on, however slow it is: parallel/comm/watch/watchdog.h.
  using Deadline = std::chrono::duration<double>;

 protected:
  ProcessGroup(std::string name, int rank, std::vector<int> members)
      : name_(std::move(name)), rank_(rank), size_(static_cast<int>(members.size())), members_(std::move(members)) {}

 private:
  std::string name_;
  int rank_, size_;
  std::vector<int> members_;
};

/// A group of one rank: every operation is a copy or does nothing.
std::shared_ptr<ProcessGroup> self_group();

/// Runs `body` once per rank, each on its own thread, with a world group over shared memory, a MemoryPool and a team of
/// `threads_per_rank`. Returns when all have ended. When a rank throws, the waits of the others end, and the first
/// error is rethrown here, once.
/// @snippet training_test.cpp ranks
void run_thread_ranks(int ranks, int threads_per_rank, ProcessGroup::Deadline deadline,
                      const std::function<void(std::shared_ptr<ProcessGroup>)>& body);

/// True if a launcher (mpirun, srun) started this process.
bool under_mpi_launcher();
int mpi_launcher_size();  ///< the launcher's number of ranks, without initialising MPI; 1 without a launcher
/// The group of all the launcher's ranks. The first call initialises MPI, and fixes `fastest`: with SumOrder::any, MPI
/// makes the sums of f32, f64 and integers for which the caller allows it.
std::shared_ptr<ProcessGroup> mpi_world(ProcessGroup::Deadline deadline, SumOrder fastest = SumOrder::ranks);
/// Ends all ranks of the launcher with this exit code; for a failure after mpi_world().
[[noreturn]] void mpi_abort(int exit_code);
/// Ends this rank while another rank ends the job with mpi_abort(). mpirun then ends sooner than if this rank waited to
/// be ended, or aborted too.
[[noreturn]] void mpi_leave(int exit_code);

}  // namespace trireme
