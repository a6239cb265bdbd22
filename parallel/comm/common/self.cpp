// The group of one rank: every operation is a copy or does nothing, and is complete when it returns.
// Read next: parallel/comm/threads/group.cpp, which does the same things among several ranks.
#include "parallel/comm/collective.h"
#include "parallel/comm/common/mailbox.h"
#include "parallel/comm/rank_order.h"

namespace trireme {
namespace comm {
namespace {

class SelfGroup final : public CollectiveGroup, public std::enable_shared_from_this<SelfGroup> {
 public:
  SelfGroup(const std::string& name, int world_rank) : CollectiveGroup(name, 0, {world_rank}) {
    box_.leave(0);  // a recv without an earlier send fails: nobody else can send
  }

  Work send(Tensor x, int to, int tag) override {
    check_message("send", x, to, tag, *this);
    box_.put(0, tag, x);
    return {};
  }

  Work recv(Tensor y, int from, int tag) override {
    check_message("recv", y, from, tag, *this);
    return receive(shared_from_this(), box_, std::move(y), from, tag, [tag](WaitResult) {
      fail(ExitCode::desync, "recv", "a rank receives from itself with tag {} what it has not sent; send first", tag);
    });
  }

  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    place_in_subgroup(world_ranks, name, *this);
    return lone_group(name, world_ranks.front());
  }

 protected:
  Work submit(Collective c, Launch) override {
    check(c, *this);
    if (c.y.defined()) {
      copy_bytes(static_cast<std::byte*>(c.y.raw()), static_cast<const std::byte*>(c.x.raw()),
                 static_cast<std::size_t>(c.y.bytes()));
    }
    return {};
  }

 private:
  std::atomic<bool> never_failed_{false};
  Mailbox box_{never_failed_};
};

}  // namespace

std::shared_ptr<ProcessGroup> lone_group(const std::string& name, int world_rank) {
  return std::make_shared<SelfGroup>(name, world_rank);
}

}  // namespace comm

std::shared_ptr<ProcessGroup> self_group() { return comm::lone_group("self", 0); }

}  // namespace trireme
