// A machine with GPUs for tests: the ranks are threads, all on one emulated device, and their groups communicate over
// the fake NCCL of fake_nccl.h.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "cuda/runtime/emulated.h"
#include "parallel/comm/nccl/group.h"
#include "parallel/comm/progress_board.h"
#include "tests/comm/fake_nccl.h"
#include "tests/comm/patience.h"
#include "tests/support/errors.h"

namespace trireme::testing {

/// Progress boards that threads share.
class Boards {
 public:
  std::unique_ptr<comm::ProgressBoard> open(std::uint64_t instance, int world_rank) {
    return std::make_unique<One>(*this, instance, world_rank);
  }
  void hide(int world_rank) { hidden_.insert(world_rank); }

 private:
  class One final : public comm::ProgressBoard {
   public:
    One(Boards& boards, std::uint64_t instance, int me) : boards_(boards), instance_(instance), me_(me) {}
    void begin(const Entry& entry) override {
      const std::scoped_lock lock(boards_.mutex_);
      boards_.entries_[{instance_, me_}] = entry;
    }
    std::optional<Entry> read(int world_rank) override {
      const std::scoped_lock lock(boards_.mutex_);
      if (boards_.hidden_.contains(world_rank)) return std::nullopt;
      return boards_.entries_[{instance_, world_rank}];
    }
    bool visible(int world_rank) const override { return !boards_.hidden_.contains(world_rank); }

   private:
    Boards& boards_;
    std::uint64_t instance_;
    int me_;
  };
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, int>, comm::ProgressBoard::Entry> entries_;
  std::set<int> hidden_;
};

using Group = std::shared_ptr<ProcessGroup>;

/// What a test's ranks share, and how a rank makes its group.
struct Machine {
  const cuda::ScopedEmulatedDevice device;
  std::shared_ptr<Fabric> fabric = std::make_shared<Fabric>();
  Boards boards;
  ProcessGroup::Deadline deadline = patience;
  SumOrder fastest = SumOrder::ranks;
  std::atomic<int> told{0};
  std::string problem;  ///< of the first failure reported, to be read after the ranks

  std::shared_ptr<FakeNccl> library(int rank, Compute compute = Compute::on_host) const {
    return std::make_shared<FakeNccl>(fabric, fmt::format("GPU {}", rank), compute);
  }
  Group group(const Group& host, const std::shared_ptr<FakeNccl>& api) {
    return comm::nccl_group(
        host, api,
        {.deadline = deadline,
         .connect_deadline = patience,
         .on_failure = [this](const std::exception_ptr& error) { note(error); },
         .open_board = [this, rank = host->rank()](std::uint64_t instance) { return boards.open(instance, rank); },
         .fastest = fastest});
  }
  Group group(const Group& host) { return group(host, library(host->rank())); }

 private:
  void note(const std::exception_ptr& error) {
    const std::scoped_lock lock(mutex_);
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      if (problem.empty()) problem = e.what();
    }
    ++told;
  }
  std::mutex mutex_;
};

/// The error that comes out when the ranks run `body`; all ranks must end.
inline Error error_of(Machine& machine, int ranks, const std::function<void(ProcessGroup&)>& body) {
  return thrown_by(
      [&] { run_thread_ranks(ranks, 1, patience, [&](const Group& world) { body(*machine.group(world)); }); });
}

}  // namespace trireme::testing
