#include "parallel/comm/dry_group.h"

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "core/dry_kernels.h"
#include "parallel/comm/collective.h"
#include "parallel/comm/trace.h"

namespace trireme {

class DryFacts {
 public:
  /// What the members of a group brought to one collective, by world rank. Bytes, because a tensor would be memory of
  /// the rank that brought it.
  using Brought = std::map<int, std::vector<std::byte>>;

  /// Adds x of `rank`, and returns what is known of the others.
  Brought bring(const std::string& group, const std::vector<int>& members, int turn, int rank, const Tensor& x) {
    const std::scoped_lock lock(mutex_);
    Brought& brought = collectives_[{group, members, turn}];
    const auto* const bytes = static_cast<const std::byte*>(x.device_address());
    brought.insert_or_assign(rank, std::vector(bytes, bytes + x.bytes()));
    Brought others = brought;
    others.erase(rank);
    return others;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::vector<int>, int>, Brought> collectives_;
};

std::shared_ptr<DryFacts> make_dry_facts() { return std::make_shared<DryFacts>(); }

namespace comm {
namespace {

/// x = the sum over `ranks` ranks: of those in `others`, and of ranks that all have this x.
template <class T>
void add(const Tensor& x, int ranks, const DryFacts::Brought& others) {
  const std::span sums(static_cast<T*>(x.device_address()), static_cast<std::size_t>(x.count()));
  const auto equals = static_cast<T>(ranks - static_cast<int>(others.size()));
  for (T& sum : sums) sum = static_cast<T>(sum * equals);
  for (const auto& [rank, bytes] : others)
    for (std::size_t i = 0; i < sums.size(); ++i) {
      T theirs;
      std::memcpy(&theirs, bytes.data() + i * sizeof(T), sizeof(T));
      sums[i] += theirs;
    }
}

/// 16-bit numbers are not looked at one by one.
void add(const Tensor& x, int ranks, const DryFacts::Brought& others) {
  switch (x.dtype()) {
    case DType::f64:
      return add<double>(x, ranks, others);
    case DType::f32:
      return add<float>(x, ranks, others);
    case DType::i64:
      return add<std::int64_t>(x, ranks, others);
    case DType::i32:
      return add<std::int32_t>(x, ranks, others);
    default:
      return;
  }
}

class DryGroup final : public CollectiveGroup, public std::enable_shared_from_this<DryGroup> {
 public:
  DryGroup(const std::string& group_name, int rank, std::vector<int> world_ranks, Trace* trace,
           std::shared_ptr<DryFacts> facts)
      : CollectiveGroup(group_name, rank, std::move(world_ranks)),
        facts_(std::move(facts)),
        trace_(trace),
        number_(trace == nullptr ? 0 : trace->add_group(name(), members())) {}

  // As ranks that keep step: a message has left its sender when the sender next receives one of this group.
  Work send(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    const MemoryScope scope(MemoryCategory::communication);
    sent_.push_back(Tensor::empty(x.shape(), x.dtype(), x.device()));
    start_message(Trace::TransferKind::send, x, to, tag);
    return {};
  }
  Work send_final(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    sent_.push_back(x.detach());
    start_message(Trace::TransferKind::send, x, to, tag);
    return {};
  }
  Work recv(Tensor y, int from, int tag) override {
    check_message("recv", y, from, tag, *this);
    const int number = start_message(Trace::TransferKind::receive, y, from, tag);
    return Work(std::make_shared<Receipt>(shared_from_this(), number));
  }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<DryGroup>(name, place_in_subgroup(world_ranks, name, *this), world_ranks, trace_, facts_);
  }

 protected:
  /// The operation keeps its tensors until somebody waits for it, as a real one that has not ended.
  class Pending final : public Work::State {
   public:
    Pending(Tensor x, Tensor y, Trace* trace, int number)
        : x_(std::move(x)), y_(std::move(y)), trace_(trace), number_(number) {}
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    ~Pending() override { Pending::wait(); }  // dropping a Work waits
    void wait() override {
      x_ = y_ = Tensor();
      if (Trace* trace = std::exchange(trace_, nullptr)) trace->wait(number_);
    }
    bool done() override { return true; }

   private:
    Tensor x_, y_;
    Trace* trace_;
    int number_;
  };

  class Receipt final : public Work::State {
   public:
    Receipt(std::shared_ptr<DryGroup> group, int number) : group_(std::move(group)), number_(number) {}
    void wait() override {
      if (group_ == nullptr) return;
      group_->sent_.clear();
      if (group_->trace_ != nullptr) group_->trace_->wait(number_);
      group_ = nullptr;
    }
    bool done() override { return true; }

   private:
    std::shared_ptr<DryGroup> group_;
    int number_;
  };

  Work submit(Collective c, Launch launch) override {
    check(c, *this);
    make(c);
    int number = 0;
    if (trace_ != nullptr) {
      const Signature signature = c.signature(size());
      number = trace_->start({.collective = signature,
                              .group = number_,
                              .bytes = signature.count * static_cast<std::int64_t>(size_of(signature.dtype)),
                              .background = launch == Launch::background});
    }
    return Work(std::make_shared<Pending>(c.x.defined() ? c.x.detach() : c.x, c.y.defined() ? c.y.detach() : c.y,
                                          trace_, number));
  }

 private:
  /// Returns its number in the trace.
  int start_message(Trace::TransferKind kind, const Tensor& x, int peer, int tag) const {
    if (trace_ == nullptr) return 0;
    return trace_->start({.kind = kind, .group = number_, .peer = world_rank(peer), .tag = tag, .bytes = x.bytes()});
  }

  void make(const Collective& c) {
    const int turn = turn_++;
    const Tensor& result = c.y.defined() ? c.y : c.x;
    if (!result.defined() || !c.x.defined() || !is_looked_at(result)) return;
    const DryFacts::Brought others = what_others_brought(c.x, turn);
    const bool is_sum = c.kind == CollectiveKind::all_reduce || c.kind == CollectiveKind::reduce ||
                        c.kind == CollectiveKind::reduce_scatter;
    if (c.y.defined()) {
      const auto x = static_cast<std::size_t>(c.x.bytes()), y = static_cast<std::size_t>(c.y.bytes());
      const auto* from = static_cast<const std::byte*>(c.x.device_address());
      auto* to = static_cast<std::byte*>(c.y.device_address());
      if (x == y) std::memcpy(to, from, y);
      if (x > y) std::memcpy(to, from + static_cast<std::size_t>(rank()) * y, y);
      for (std::size_t at = 0; x < y && at < y; at += x) std::memcpy(to + at, from, x);
    }
    if (is_sum && c.op == ReduceOp::sum)
      add(result, size(), c.kind == CollectiveKind::reduce_scatter ? DryFacts::Brought() : others);
    if (c.kind != CollectiveKind::broadcast) return;
    const auto root = others.find(world_rank(c.root));
    if (root != others.end()) std::memcpy(result.device_address(), root->second.data(), root->second.size());
  }

  /// As far as it is known, and as large as x.
  DryFacts::Brought what_others_brought(const Tensor& x, int turn) const {
    constexpr std::int64_t most = 4 << 10;  // bytes
    if (facts_ == nullptr || x.bytes() > most) return {};
    DryFacts::Brought others = facts_->bring(name(), members(), turn, world_rank(rank()), x);
    std::erase_if(others,
                  [&x](const auto& entry) { return entry.second.size() != static_cast<std::size_t>(x.bytes()); });
    return others;
  }

  std::vector<Tensor> sent_;
  std::shared_ptr<DryFacts> facts_;
  int turn_ = 0;  // collectives so far
  Trace* trace_;
  int number_;  // of this group, in the trace
};

}  // namespace
}  // namespace comm

std::shared_ptr<ProcessGroup> dry_world(int ranks, int rank, Trace* trace, std::shared_ptr<DryFacts> facts) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<comm::DryGroup>("world", rank, std::move(members), trace, std::move(facts));
}

}  // namespace trireme
