// When asynchronous operations complete, and mbarriers. See cuda/emu/block.h and cuda/emu/async.h.
#include "cuda/emu/async.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cuda/emu/cluster.h"
#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"

namespace trireme::cuda::emu {

void AsyncGroups::wait(std::size_t newest) {
  while (closed.size() > newest) {
    const std::vector<Operation> oldest = std::move(closed.front());
    closed.erase(closed.begin());
    for (const Operation& operation : oldest) operation();
  }
  if (committed > newest) waited = std::max(waited, committed - static_cast<std::uint32_t>(newest));
}

bool AsyncGroups::in_flight() const {
  return !open.empty() || std::any_of(closed.begin(), closed.end(), [](const auto& group) { return !group.empty(); });
}

void Block::start(Operation operation, AsyncGroups* group) {
  const Completion completion = schedule_.completion();
  const bool in_order = group == nullptr || !group->in_flight();  // operations of a group complete in order
  if (completion == Completion::early || (completion == Completion::random && in_order && choice_.one_in(4)))
    return operation();
  if (group != nullptr)
    group->open.push_back(std::move(operation));
  else
    in_flight_.push_back(std::move(operation));
}

bool Block::complete_one() {
  if (in_flight_.empty()) return false;
  std::swap(in_flight_[choice_.below(in_flight_.size())], in_flight_.back());
  const Operation operation = std::move(in_flight_.back());
  in_flight_.pop_back();
  try {
    operation();
  } catch (...) { failure_ = std::current_exception(); }
  return true;
}

void Block::wait_mbarrier(std::uint64_t* word, std::uint32_t parity, Site site) {
  check_shared(word, 8, 8, "mbarrier", site);
  if (race_ != nullptr) race_->access(word, 8, AccessKind::mbarrier_use, __builtin_return_address(0));
  give_way();
  while (Mbarrier::load(word, site).phase == (parity & 1U)) {
    mbarrier_waits_.push_back({running_, word, parity & 1U});
    wait(parity == 0 ? "phase 0 of an mbarrier" : "phase 1 of an mbarrier", site);
  }
  if (race_ != nullptr) race_->mbarrier_passed(word);
}

void Block::mbarrier_flipped(const std::uint64_t* word) {
  for (std::size_t i = 0; i < mbarrier_waits_.size();) {
    if (mbarrier_waits_[i].word != word) {
      ++i;
      continue;
    }
    wake(*mbarrier_waits_[i].fiber);
    mbarrier_waits_.erase(mbarrier_waits_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

namespace {
constexpr std::uint64_t kMagic = 0xb7;        // bits 56-63; uninitialised memory has 0xff there
constexpr std::int64_t kBytesBias = 1 << 24;  // the byte count may be negative for a while
}  // namespace

Mbarrier Mbarrier::load(const std::uint64_t* word, Site site) {
  const std::uint64_t bits = *word;
  if (bits >> 56 != kMagic)
    running_block->fault(site, "this mbarrier was never initialised, or something wrote over it");
  return {static_cast<std::uint32_t>(bits & 1U), static_cast<int>((bits >> 1) & 0x7fffU),
          static_cast<int>((bits >> 16) & 0x7fffU), static_cast<std::int64_t>((bits >> 31) & 0x1ffffffU) - kBytesBias};
}

void Mbarrier::store(std::uint64_t* word) const {
  *word = phase | (static_cast<std::uint64_t>(expected) << 1) | (static_cast<std::uint64_t>(pending) << 16) |
          (static_cast<std::uint64_t>(bytes + kBytesBias) << 31) | (kMagic << 56);
}

void Mbarrier::settle(std::uint64_t* word, Block& owner) {
  const bool complete = pending == 0 && bytes == 0;
  if (complete) {
    phase ^= 1U;
    pending = expected;
    if (owner.race() != nullptr) owner.race()->mbarrier_complete(word);
  }
  store(word);
  if (complete) owner.mbarrier_flipped(word);
}

void mbarrier_init(std::uint64_t* word, int count, Site site) {
  Block& block = *running_block;
  block.check_shared(word, 8, 8, "mbarrier.init", site);
  if (block.race() != nullptr) block.race()->access(word, 8, AccessKind::mbarrier_init, __builtin_return_address(0));
  Mbarrier{0, count, count, 0}.store(word);
}

namespace {
/// By the running thread, at a word in the memory of `owner`.
void arrive(Block& owner, std::uint64_t* word, std::int64_t expected_bytes, const void* pc, Site site) {
  Block& block = *running_block;
  if (block.race() != nullptr) block.race()->mbarrier_arrive(*owner.race(), word, pc);
  Mbarrier barrier = Mbarrier::load(word, site);
  if (barrier.pending == 0)
    block.fault(site, fmt::format("more arrivals than the {} this mbarrier expects in a phase", barrier.expected));
  --barrier.pending;
  barrier.bytes += expected_bytes;
  barrier.settle(word, owner);
  block.give_way();
}
}  // namespace

void mbarrier_arrive(std::uint64_t* word, std::int64_t expected_bytes, Site site) {
  running_block->check_shared(word, 8, 8, "mbarrier.arrive", site);
  arrive(*running_block, word, expected_bytes, __builtin_return_address(0), site);
}

void mbarrier_arrive_at(std::uint64_t* word, int rank, Site site) {
  Block& owner = running_block->cluster().peer(rank, word, 8, "mbarrier.arrive", site);
  arrive(owner, in_block(owner, *running_block, word), 0, __builtin_return_address(0), site);
}

void mbarrier_complete_bytes(Block& owner, std::uint64_t* word, std::int64_t bytes, Site site) {
  Mbarrier barrier = Mbarrier::load(word, site);
  barrier.bytes -= bytes;
  barrier.settle(word, owner);
}

void cp_async(void* destination, const void* source, int bytes, int valid, Site site) {
  Block& block = *running_block;
  const auto size = static_cast<std::size_t>(bytes);
  block.check_shared(destination, size, size, "cp.async", site);
  if (reinterpret_cast<std::uintptr_t>(source) % size != 0 && valid > 0)
    block.fault(site, fmt::format("cp.async: the source is not a multiple of {}", bytes));
  if (valid < 0 || valid > bytes) block.fault(site, fmt::format("cp.async: {} of {} bytes are valid", valid, bytes));
  if (block.race() != nullptr)
    block.race()->copy(destination, source, size, static_cast<std::size_t>(valid), __builtin_return_address(0));
  if (block.traffic() != nullptr) {
    block.traffic()->access(source, static_cast<std::size_t>(valid), false, __builtin_return_address(0));
    block.traffic()->access(destination, size, true, __builtin_return_address(0));
    block.traffic()->copy_issued();
  }
  std::memset(destination, 0xff, size);  // undefined between issue and completion
  block.start(
      [=] {
        std::memset(destination, 0, size);
        if (valid > 0) std::memcpy(destination, source, static_cast<std::size_t>(valid));
      },
      &block.fiber().copies);
}

}  // namespace trireme::cuda::emu
