// Collectives among the threads of one process, over their shared memory.
//
// Small operations (latency): each rank copies its contribution into its slot, the ranks meet once, and each takes what
// it needs from the slots. Large ones (bandwidth): each shows a pointer to its tensor, they meet, each does its part,
// and they meet again, so that no tensor changes while a peer reads it. In an all-reduce, rank r's part is the r-th
// chunk: it reads that chunk of all ranks' tensors and writes the sum into all of them; every byte is read once and
// written once, in place, with no buffer.
// Read next: parallel/comm/mpi/group.cpp, the same operations between processes.
#include <algorithm>

#include "core/parallel_for.h"
#include "parallel/comm/common/diagnosis.h"
#include "parallel/comm/common/operation_queue.h"
#include "parallel/comm/common/records.h"
#include "parallel/comm/rank_order.h"
#include "parallel/comm/threads/world.h"

namespace trireme::comm {
namespace {

// The rank's team of threads shares large copies, as it does sums.
void copy_large(std::byte* to, const std::byte* from, std::size_t bytes) {
  parallel_for(static_cast<std::int64_t>(bytes), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    copy_bytes(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

class ThreadGroup final : public CollectiveGroup, public std::enable_shared_from_this<ThreadGroup> {
 public:
  ThreadGroup(std::shared_ptr<GroupState> state, const std::string& name, int rank, std::vector<int> members)
      : CollectiveGroup(name, rank, std::move(members)),
        state_(std::move(state)),
        queue_([this](const Collective& c, std::uint64_t sequence) { run(c, sequence); }, [this] { abandon(); }) {}

  void abandon() override { state_->world->fail(nullptr); }

  Work send(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    const ProfileScope event([&] { return message_event("send", *this, x, to, tag); });
    const watch::Recording record(message_record(watch::Record::What::send, *this, x, to, tag));
    state_->mailboxes[static_cast<std::size_t>(to)]->put(rank(), tag, x);
    return {};
  }

  Work send_final(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    const ProfileScope event([&] { return message_event("send", *this, x, to, tag); });
    const watch::Recording record(message_record(watch::Record::What::send, *this, x, to, tag));
    state_->mailboxes[static_cast<std::size_t>(to)]->put_final(rank(), tag, x.detach());
    return {};
  }

  Work recv(Tensor y, int from, int tag) override {
    check_message("recv", y, from, tag, *this);
    const auto explain = [this, from, tag,
                          text = fmt::format("{} {}", y.count(), trireme::name(y.dtype()))](WaitResult result) {
      if (result == WaitResult::failed) throw PeerFailed();
      fail_wait("recv", fmt::format("{} with tag {} on group '{}'", text, tag, name()), "sent by", {from});
    };
    return receive(shared_from_this(), *state_->mailboxes[static_cast<std::size_t>(rank())], std::move(y), from, tag,
                   explain);
  }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    const int place = place_in_subgroup(world_ranks, name, *this);
    const int me = world_rank(rank());
    if (world_ranks.size() == 1) return lone_group(name, me);
    return thread_group(state_->world->join(world_ranks, name, me), name, place, world_ranks);
  }

 protected:
  Work submit(Collective collective, Launch launch) override {
    return queue_.push(shared_from_this(), std::move(collective), launch);
  }

 private:
  void run(const Collective& c, std::uint64_t sequence) {
    const Signature mine = c.signature(size());
    const watch::Recording record(collective_record(*this, c, mine, sequence));
    const std::size_t parity = sequence % 2;
    const std::size_t bytes = contribution_bytes(mine, size());
    const bool small = bytes <= small_bytes;
    GroupState::Slot::Shown& shown = state_->slots[static_cast<std::size_t>(rank())].shown[parity];
    shown.signature = mine;
    shown.x = c.x.defined() && bytes > 0 ? static_cast<std::byte*>(c.x.raw()) : nullptr;
    if (small && shown.x != nullptr) {
      if (!shown.copy) shown.copy = std::make_unique_for_overwrite<std::byte[]>(small_bytes);
      copy_bytes(shown.copy.get(), shown.x, bytes);
      shown.x = shown.copy.get();
    }
    meet(record, mine, sequence, "arrived");
    check_signatures(mine, sequence, parity);
    if (bytes == 0) return;
    take_part(c, mine, contributions(parity), small);
    if (!small) meet(record, mine, sequence, "finished");
  }

  // This rank's part, between the barriers; xs: the ranks' contributions. `small`: they are copies in the slots; no
  // rank accesses another's tensors, and each computes its own whole result.
  void take_part(const Collective& c, const Signature& s, const std::vector<std::byte*>& xs, bool small) {
    const std::size_t share = static_cast<std::size_t>(s.count) * size_of(s.dtype);
    const std::size_t mine = static_cast<std::size_t>(rank()) * share;
    std::byte* x = c.x.defined() ? static_cast<std::byte*>(c.x.raw()) : nullptr;
    std::byte* y = c.y.defined() ? static_cast<std::byte*>(c.y.raw()) : nullptr;
    const auto root = static_cast<std::size_t>(c.root), ranks = xs.size();
    switch (c.kind) {
      case CollectiveKind::all_reduce:
      case CollectiveKind::reduce:
        return reduce_part(c, s, xs, small);
      case CollectiveKind::reduce_scatter: {
        std::vector<const std::byte*> sources;
        for (const std::byte* source : xs) sources.push_back(source + mine);
        return combine(s.dtype, s.op, sources, {&y, 1}, 0, s.count);
      }
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all: {
        const std::size_t offset = c.kind == CollectiveKind::all_to_all ? mine : 0;
        for (std::size_t i = 0; i < ranks; ++i) {  // its own first: ranks do not all read one tensor at once
          const std::size_t r = (static_cast<std::size_t>(rank()) + i) % ranks;
          copy_large(y + r * share, xs[r] + offset, share);
        }
        return;
      }
      case CollectiveKind::gather:
        for (std::size_t r = 0; rank() == c.root && r < ranks; ++r) copy_large(y + r * share, xs[r], share);
        return;
      case CollectiveKind::broadcast:
        if (rank() != c.root) copy_large(x, xs[root], share);
        return;
      case CollectiveKind::scatter:
        return copy_large(y, xs[root] + mine, share);
      case CollectiveKind::barrier:
        return;
    }
  }

  void reduce_part(const Collective& c, const Signature& s, const std::vector<std::byte*>& xs, bool small) {
    const bool all = c.kind == CollectiveKind::all_reduce;
    if (small && !all && rank() != c.root) return;
    std::vector<std::byte*> destinations = xs;
    if (small) destinations = {static_cast<std::byte*>(c.x.raw())};
    if (!small && !all) destinations = {xs[static_cast<std::size_t>(c.root)]};
    // Chunks of whole cache lines: two ranks never write to one line.
    const std::int64_t line = 64, share = (s.count + size() - 1) / size();
    const std::int64_t chunk = small ? s.count : (share + line - 1) / line * line;
    const std::int64_t begin = small ? 0 : std::min(s.count, rank() * chunk);
    combine(s.dtype, s.op, {xs.data(), xs.size()}, destinations, begin, std::min(s.count, begin + chunk));
  }

  std::vector<std::byte*> contributions(std::size_t parity) const {
    std::vector<std::byte*> xs;
    for (const GroupState::Slot& slot : state_->slots) xs.push_back(slot.shown[parity].x);
    return xs;
  }

  void meet(const watch::Recording& record, const Signature& mine, std::uint64_t sequence, const char* what) {
    const auto missing = [this] {
      std::vector<int> ranks = state_->barrier.missing(rank());
      for (int& one : ranks) one = world_rank(one);
      return ranks;
    };
    watch::Wait wait(record, missing);
    const WaitResult result = state_->barrier.wait(rank(), wait);
    if (result == WaitResult::done) return;
    if (result == WaitResult::failed) throw PeerFailed();
    fail_wait(comm::name(mine.kind), numbered(mine, sequence, *this), what, state_->barrier.missing(rank()));
  }

  // Fails the world because of a wait for ranks that have ended.
  [[noreturn]] void fail_wait(const char* where, const std::string& operation, const char* what,
                              const std::vector<int>& missing) {
    fail_world(
        ExitCode::desync, where,
        fmt::format("{}: {} waits in vain; not {}: {}, of which one has already ended; every rank must call the same "
                    "operations",
                    operation, list_ranks(*this, {rank()}), what, list_ranks(*this, missing)));
  }

  // Every rank compares all signatures with rank 0's, so that all find the same difference.
  void check_signatures(const Signature& mine, std::uint64_t sequence, std::size_t parity) {
    const Signature& first = state_->slots[0].shown[parity].signature;
    for (int r = 1; r < size(); ++r) {
      const Signature& other = state_->slots[static_cast<std::size_t>(r)].shown[parity].signature;
      if (first == other) continue;
      fail_world(ExitCode::desync, comm::name(mine.kind), out_of_step(*this, sequence, 0, first, r, other));
    }
  }

  // Throws, and ends the waits of all ranks; run_thread_ranks() then rethrows the error.
  [[noreturn]] void fail_world(ExitCode code, const char* where, const std::string& what) {
    try {
      throw Error(code, where, what);
    } catch (...) {  // every rank gets the same exception object
      state_->world->fail(std::current_exception());
      throw;
    }
  }

  std::shared_ptr<GroupState> state_;
  OperationQueue queue_;  // last member: its thread ends first
};

}  // namespace

std::shared_ptr<ProcessGroup> thread_group(std::shared_ptr<GroupState> state, const std::string& name, int rank,
                                           std::vector<int> members) {
  return std::make_shared<ThreadGroup>(std::move(state), name, rank, std::move(members));
}

}  // namespace trireme::comm
