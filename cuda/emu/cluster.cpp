// See cuda/emu/cluster.h.
#include "cuda/emu/cluster.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

namespace {
Dim3 block_of(std::uint64_t linear, Dim3 grid) {
  return {static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
          static_cast<unsigned>(linear / grid.x / grid.y)};
}
}  // namespace

Cluster::Cluster(const BlockShape& shape, const std::vector<std::unique_ptr<Stacks>>& stacks,
                 const std::function<void()>& body) {
  for (int rank = 0; rank < shape.cluster; ++rank)
    blocks_.push_back(std::make_unique<Block>(shape, *stacks[static_cast<std::size_t>(rank)], body, *this, rank));
}

void Cluster::check_races(RaceLaunch& launch, std::uint32_t first) {
  for (const auto& block : blocks_) block->check_races(launch, first++);
}

void Cluster::count_traffic(Traffic& sum) {
  for (const auto& block : blocks_) block->count_traffic(sum);
}

void Cluster::run(std::uint64_t first, Schedule schedule) {
  for (const auto& block : blocks_) block->prepare(block_of(first++, block->shape().grid), schedule);
  try {
    interleave(schedule);
    running_block = nullptr;
    running_fiber = nullptr;
    for (const auto& block : blocks_) block->check_end();
  } catch (...) {
    running_block = nullptr;
    running_fiber = nullptr;
    for (const auto& block : blocks_) block->abandon();
    throw;
  }
}

void Cluster::interleave(Schedule schedule) {
  SplitMix64 choice(schedule.seed);
  const bool random = schedule.order() == Order::random || schedule.order() == Order::priorities;
  const auto live = [](const auto& block) { return !block->ended(); };
  std::size_t at = schedule.seed / 2 % blocks_.size(), stuck = 0;
  while (std::any_of(blocks_.begin(), blocks_.end(), live)) {
    running_block = blocks_[at].get();
    const bool went_on = running_block->step();
    stuck = went_on ? 0 : stuck + 1;
    if (stuck == blocks_.size()) fail_deadlocked();
    if (!went_on || (random && blocks_.size() > 1 && choice.one_in(16))) at = (at + 1) % blocks_.size();
  }
}

void Cluster::fail_deadlocked() const {
  std::string text;
  for (const auto& block : blocks_)
    if (!block->ended()) text += (text.empty() ? "" : "; ") + block->deadlock_report();
  throw Error(ExitCode::internal, blocks_.front()->shape().kernel, text);
}

Block& Cluster::peer(int rank, const void* pointer, std::size_t bytes, const char* what, Site site) {
  Block& self = *running_block;
  if (rank < 0 || rank >= static_cast<int>(blocks_.size()))
    self.fault(site, fmt::format("{}: block {} of the cluster; expected 0 to {}", what, rank, blocks_.size() - 1));
  Block& other = *blocks_[static_cast<std::size_t>(rank)];
  const std::uint32_t address = self.check_shared(pointer, bytes, 8, what, site);
  const auto refuse = [&](const char* why) {
    self.fault(site, fmt::format("{}: block {} of the cluster {}; let the blocks wait for each other (sync_cluster)",
                                 what, rank, why));
  };
  if (other.ended()) refuse("has ended, and its shared memory with it");
  if (other.shared_range(address, bytes) == nullptr) refuse("has not come to its shared memory yet");
  return other;
}

void Cluster::barrier(Site site) {
  Block& self = *running_block;
  std::size_t expected = 0;
  for (const auto& block : blocks_) expected += static_cast<std::size_t>(block->threads());
  if (waiting_.size() + 1 < expected) {
    waiting_.emplace_back(&self, &self.fiber());
    return self.wait("all threads of the cluster", site);
  }
  if (self.race() != nullptr) {
    std::vector<RaceChecker*> checkers;
    for (const auto& block : blocks_) checkers.push_back(block->race());
    RaceChecker::cluster_barrier(checkers);
  }
  for (const auto& [block, fiber] : std::exchange(waiting_, {})) block->wake(*fiber);
  self.give_way();
}

}  // namespace trireme::cuda::emu
