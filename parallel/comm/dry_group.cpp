#include "parallel/comm/dry_group.h"

#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "core/dry_kernels.h"
#include "parallel/comm/collective.h"

namespace trireme {
namespace comm {
namespace {

template <class T>
void multiply(const Tensor& x, int factor) {
  for (T& element : std::span(static_cast<T*>(x.device_address()), static_cast<std::size_t>(x.count())))
    element = static_cast<T>(element * static_cast<T>(factor));
}

/// x = the sum over `ranks` ranks that all have this x. 16-bit numbers are not looked at one by one.
void sum_of_equals(const Tensor& x, int ranks) {
  switch (x.dtype()) {
    case DType::f64:
      return multiply<double>(x, ranks);
    case DType::f32:
      return multiply<float>(x, ranks);
    case DType::i64:
      return multiply<std::int64_t>(x, ranks);
    case DType::i32:
      return multiply<std::int32_t>(x, ranks);
    default:
      return;
  }
}

class DryGroup final : public CollectiveGroup, public std::enable_shared_from_this<DryGroup> {
 public:
  DryGroup(const std::string& name, int rank, std::vector<int> members)
      : CollectiveGroup(name, rank, std::move(members)) {}

  // As ranks that keep step: a message has left its sender when the sender next receives one of this group.
  Work send(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    const MemoryScope scope(MemoryCategory::communication);
    sent_.push_back(Tensor::empty(x.shape(), x.dtype(), x.device()));
    return {};
  }
  Work send_final(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    sent_.push_back(x.detach());
    return {};
  }
  Work recv(Tensor y, int from, int tag) override {
    check_message("recv", y, from, tag, *this);
    return Work(std::make_shared<Receipt>(shared_from_this()));
  }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<DryGroup>(name, place_in_subgroup(world_ranks, name, *this), world_ranks);
  }

 protected:
  /// The operation keeps its tensors until somebody waits for it, as a real one that has not ended.
  class Pending final : public Work::State {
   public:
    Pending(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {}
    void wait() override { x_ = y_ = Tensor(); }
    bool done() override { return true; }

   private:
    Tensor x_, y_;
  };

  class Receipt final : public Work::State {
   public:
    explicit Receipt(std::shared_ptr<DryGroup> group) : group_(std::move(group)) {}
    void wait() override {
      if (group_) group_->sent_.clear();
      group_ = nullptr;
    }
    bool done() override { return true; }

   private:
    std::shared_ptr<DryGroup> group_;
  };

  Work submit(Collective c, Launch) override {
    check(c, *this);
    make(c);
    return Work(std::make_shared<Pending>(c.x.defined() ? c.x.detach() : c.x, c.y.defined() ? c.y.detach() : c.y));
  }

 private:
  void make(const Collective& c) const {
    const Tensor& result = c.y.defined() ? c.y : c.x;
    if (!result.defined() || !c.x.defined() || !is_looked_at(result)) return;
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
    if (is_sum && c.op == ReduceOp::sum) sum_of_equals(result, size());
  }

  std::vector<Tensor> sent_;
};

}  // namespace
}  // namespace comm

std::shared_ptr<ProcessGroup> dry_world(int ranks, int rank) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_shared<comm::DryGroup>("world", rank, std::move(members));
}

}  // namespace trireme
