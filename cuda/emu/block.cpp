// The scheduler of a block, and what threads wait for. See cuda/emu/block.h.
#include "cuda/emu/block.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>

#include "core/error.h"
#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"
#include "cuda/emu/wgmma_registers.h"
#include "cuda/emu/zone.h"

namespace trireme::cuda::emu {

namespace {

Dim3 thread_of(int index, Dim3 block) {
  const auto i = static_cast<unsigned>(index);
  return {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
}

/// Sorted thread numbers as ranges: "threads 0-31, 64". If there are many ranges: "127 threads (0, 2, 4, ...)".
std::string ranges(const std::vector<int>& threads) {
  std::string text;
  constexpr int most = 8;
  int count = 0;
  for (std::size_t i = 0; i < threads.size(); ++count) {
    if (count == most)
      return fmt::format("{} threads ({}, {}, {}, ...)", threads.size(), threads[0], threads[1], threads[2]);
    std::size_t last = i;
    while (last + 1 < threads.size() && threads[last + 1] == threads[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", threads[i]);
    if (last > i) text += fmt::format("-{}", threads[last]);
    i = last + 1;
  }
  return (threads.size() == 1 ? "thread " : "threads ") + text;
}

const char* base_name(const char* file) {
  const std::string_view path(file);
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? file : file + slash + 1;
}

}  // namespace

Block::Block(const BlockShape& shape, const Stacks& stacks, const std::function<void()>& body, Cluster& cluster,
             int rank)
    : shape_(shape), stacks_(stacks), body_(body), cluster_(cluster), rank_(rank) {
  fibers_.resize(static_cast<std::size_t>(shape.block.x) * shape.block.y * shape.block.z);
}

Block::~Block() {
  if (shared_ != nullptr) unpoison(shared_, kSharedSpan);
}

void Block::check_races(RaceLaunch& launch, std::uint32_t block_index) {
  race_ = std::make_unique<RaceChecker>(*this, launch, block_index);
}

void Block::count_traffic(Traffic& sum) { traffic_ = std::make_unique<BlockTraffic>(*this, sum); }

void Block::warp_met() { traffic_->meet(running_->index / 32 * 32, 32); }

void Block::prepare(Dim3 index, Schedule schedule) {
  index_ = index;
  schedule_ = schedule;
  choice_ = SplitMix64(schedule.seed * 0x10001 + index.x + 977 * index.y + 7919 * index.z);
  runnable_.clear();
  head_ = 0;
  live_ = threads();
  const std::size_t warps = (fibers_.size() + 31) / 32, groups = (fibers_.size() + 127) / 128;
  meetings_.clear();
  meetings_.resize(warps);
  group_meetings_.clear();
  group_meetings_.resize(groups);
  barriers_.fill({});
  wgmma_.assign(groups, {});
  wgmma_registers_.clear();
  for (std::size_t i = 0; i < groups; ++i) wgmma_registers_.push_back(std::make_unique<WgmmaRegisters>());
  prepare_registers(groups);
  shared_memory_ = std::make_unique_for_overwrite<std::byte[]>(kSharedSpan + 1024);
  async_memory_ = std::make_unique_for_overwrite<std::byte[]>(kSharedSpan + 1024);
  const auto aligned = [](const std::unique_ptr<std::byte[]>& memory) {
    return memory.get() + (1024 - reinterpret_cast<std::uintptr_t>(memory.get()) % 1024);
  };
  shared_ = aligned(shared_memory_);
  async_view_ = aligned(async_memory_);
  poison(shared_, kSharedSpan);
  for (int i = 0; i < threads(); ++i) {
    Fiber& fiber = fibers_[static_cast<std::size_t>(i)];
    fiber.thread = thread_of(i, shape_.block);
    fiber.index = i;
    fiber.state = State::runnable;
    fiber.priority = choice_.next();
    prepare_context(fiber.context, stacks_.bottom(i), Stacks::kBytes - Stacks::kGuard, &Block::fiber_main);
    runnable_.push_back(&fiber);
  }
}

bool Block::step() {
  if (schedule_.completion() == Completion::random && !in_flight_.empty() && choice_.one_in(8)) complete_one();
  Fiber* const next = pick();
  const bool went_on = next != nullptr || complete_one();
  if (next != nullptr) {
    running_ = next;
    running_fiber = next;
    switch_context(scheduler_, next->context);
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return went_on;
}

void Block::abandon() {
  for (Fiber& fiber : fibers_)
    if (fiber.state != State::done) abandon_context(fiber.context);
}

void Block::fiber_main() {
  Block& block = *running_block;
  entered_fiber(block.scheduler_);
  Fiber& fiber = block.fiber();
  try {
    block.body_();
    if (fiber.copies.in_flight())
      block.fault(fiber.site, "the thread ends with cp.async copies in flight; wait for them");
    if (fiber.tma_stores.in_flight())
      block.fault(fiber.site,
                  "the thread ends with TMA stores in flight; wait for the group before shared memory goes");
  } catch (...) { block.failure_ = std::current_exception(); }
  fiber.state = State::done;
  --block.live_;
  switch_context(fiber.context, block.scheduler_, true);
}

Fiber* Block::pick() {
  if (head_ == runnable_.size()) {
    runnable_.clear();
    head_ = 0;
    return nullptr;
  }
  if (schedule_.order() == Order::fifo) return runnable_[head_++];
  std::size_t chosen = runnable_.size() - 1;
  if (schedule_.order() == Order::random) chosen = choice_.below(runnable_.size());
  if (schedule_.order() == Order::priorities)
    for (std::size_t i = 0; i < runnable_.size(); ++i)
      if (runnable_[i]->priority > runnable_[chosen]->priority) chosen = i;
  std::swap(runnable_[chosen], runnable_.back());
  Fiber* const fiber = runnable_.back();
  runnable_.pop_back();
  return fiber;
}

void Block::wait(const char* what, Site site) {
  Fiber& self = *running_;
  self.state = State::waiting;
  self.waits_for = what;
  self.site = site;
  switch_context(self.context, scheduler_);
}

void Block::wake(Fiber& fiber) {
  fiber.state = State::runnable;
  if (schedule_.order() == Order::priorities) fiber.priority = choice_.next();
  runnable_.push_back(&fiber);
}

void Block::give_way() {
  if (schedule_.order() == Order::fifo || schedule_.order() == Order::lifo || !choice_.one_in(3)) return;
  Fiber& self = *running_;
  wake(self);
  switch_context(self.context, scheduler_);
}

Rendezvous& Block::arrive_warp(std::uint32_t mask, const char* what, Site site, void* argument) {
  const int lane = running_->index % 32, warp = running_->index / 32;
  if (((mask >> lane) & 1U) == 0)
    fault(site, fmt::format("{}: lane {} is not in its own mask {:#x}", what, lane, mask));
  auto& open = meetings_[static_cast<std::size_t>(warp)];
  const auto found = std::find_if(open.begin(), open.end(), [&](const auto& m) { return (m->mask & mask) != 0; });
  const auto slot = static_cast<std::size_t>(found - open.begin());
  if (slot == open.size())
    open.push_back(std::make_unique<Rendezvous>(Rendezvous{what, site, mask, std::popcount(mask), 0, {}}));
  Rendezvous& meeting = *open[slot];
  if (meeting.mask != mask || !(meeting.site == site))
    fault(site, fmt::format("warp {} diverged: some lanes are at {} ({}, mask {:#x}), this one at {} (mask {:#x})",
                            warp, meeting.what, place(meeting.site), meeting.mask, what, mask));
  meeting.arguments[static_cast<std::size_t>(lane)] = argument;
  ++meeting.arrived;
  return meeting;
}

Rendezvous& Block::arrive_group(const char* what, Site site, void* argument) {
  const auto group = static_cast<std::size_t>(running_->index / 128);
  if ((group + 1) * 128 > fibers_.size()) fault(site, fmt::format("{} needs a warp group of 128 threads", what));
  std::unique_ptr<Rendezvous>& meeting = group_meetings_[group];
  if (meeting == nullptr) meeting = std::make_unique<Rendezvous>(Rendezvous{what, site, ~0U, 128, 0, {}});
  if (!(meeting->site == site))
    fault(site, fmt::format("warp group {} diverged: some threads are at {} ({}), this one at {}", group, meeting->what,
                            place(meeting->site), what));
  meeting->arguments[static_cast<std::size_t>(running_->index % 128)] = argument;
  ++meeting->arrived;
  return *meeting;
}

void Block::leave(Rendezvous& meeting, int first_thread, int width) {
  for (int i = 0; i < width; ++i) {
    Fiber& other = fibers_[static_cast<std::size_t>(std::min(first_thread + i, threads() - 1))];
    const bool takes_part = first_thread + i < threads() && ((meeting.mask >> (i % 32)) & 1U) != 0;
    if (takes_part && &other != running_) wake(other);
  }
  if (width == 128) {
    group_meetings_[static_cast<std::size_t>(first_thread / 128)].reset();
  } else {
    auto& open = meetings_[static_cast<std::size_t>(first_thread / 32)];
    open.erase(std::find_if(open.begin(), open.end(), [&](const auto& m) { return m.get() == &meeting; }));
  }
  give_way();
}

void Block::sync_warp(std::uint32_t mask, Site site) {
  meet_warp(mask, "__syncwarp", site, nullptr, [&](void* const*) {
    if (race_ != nullptr) race_->sync_warp(mask);
  });
}

void Block::barrier(int id, int count, bool waits, Site site) {
  if (id < 0 || id > 15) fault(site, fmt::format("barrier {} does not exist; there are 16, 0 to 15", id));
  if (count % 32 != 0 && count != threads())
    fault(site, fmt::format("barrier {} for {} threads: expected a multiple of 32", id, count));
  NamedBarrier& barrier = barriers_[static_cast<std::size_t>(id)];
  if (barrier.arrivals == 0) barrier.expected = count;
  if (barrier.expected != count)
    fault(site, fmt::format("barrier {} is being used for {} threads and here for {}", id, barrier.expected, count));
  const int warp = running_->index / 32;
  for (const auto& [other, line] : barrier.sites)
    if (other == warp && !(line == site))
      fault(site, fmt::format("warp {} diverged: some lanes wait at barrier {} in {}", warp, id, place(line)));
  barrier.sites.emplace_back(warp, site);
  ++barrier.arrivals;
  if (race_ != nullptr) race_->barrier_arrive(id, waits);
  if (barrier.arrivals < barrier.expected) {
    if (waits) barrier.arrived.push_back(running_);
    return waits ? wait(id == 0 ? "all threads of the block (sync_threads)" : "a named barrier", site) : give_way();
  }
  const std::vector<Fiber*> waiting = std::move(barrier.arrived);
  barrier = {};
  if (race_ != nullptr) race_->barrier_complete(id);
  if (traffic_ != nullptr && count == threads()) traffic_->barrier();
  for (Fiber* const fiber : waiting) wake(*fiber);
  give_way();
}

std::string Block::place(const Site& site) const { return fmt::format("{}:{}", base_name(site.file), site.line); }

void Block::fault(Site site, const std::string& what) const {
  const std::string who = running_ == nullptr ? "at its end" : fmt::format("thread {}", running_->index);
  fail(ExitCode::internal, shape_.kernel, "{}: block ({}, {}, {}), {}, schedule {}: {}", place(site), index_.x,
       index_.y, index_.z, who, schedule_.seed, what);
}

std::string Block::deadlock_report() const {
  std::map<std::string, std::vector<int>> waiting;
  for (const Fiber& fiber : fibers_)
    if (fiber.state == State::waiting)
      waiting[fmt::format("{} at {}", fiber.waits_for, place(fiber.site))].push_back(fiber.index);
  std::string text = fmt::format("deadlock in block ({}, {}, {}), schedule {}: {} of {} threads have ended", index_.x,
                                 index_.y, index_.z, schedule_.seed, threads() - live_, threads());
  for (const auto& [what, who] : waiting)
    text += fmt::format("; {} wait{} for {}", ranges(who), who.size() == 1 ? "s" : "", what);
  return text + register_report();
}

void Block::check_end() {
  running_ = nullptr;
  if (!in_flight_.empty())
    fault({"end of block", 0}, fmt::format("{} TMA loads are in flight when the block ends", in_flight_.size()));
  for (std::size_t i = 0; i < wgmma_.size(); ++i)
    if (wgmma_[i].in_flight() || wgmma_registers_[i]->in_flight() != nullptr)
      fault({"end of block", 0}, "wgmma is in flight when the block ends; wait for it");
  check_zones();
  if (traffic_ != nullptr) traffic_->end(shared_used_);
}

}  // namespace trireme::cuda::emu
