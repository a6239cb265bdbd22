// The registers that a block's warp groups share out by setmaxnreg. See cuda/emu/block.h.
//
// A block has as many registers as it was launched with: those of a thread, which ptxas derives from __launch_bounds__,
// times its threads. A warp group gives some back (dec), or takes some when there are enough (inc).
#include <fmt/core.h>

#include <algorithm>

#include "cuda/emu/block.h"

namespace trireme::cuda::emu {

namespace {

constexpr int kOfMultiprocessor = 65536, kLeast = 24, kMost = 256;

/// Registers of a thread at launch: as many as the bounds leave room for, in units of eight.
int at_launch(LaunchBounds bounds) {
  const int threads = (bounds.threads + 31) / 32 * 32 * std::max(1, bounds.blocks);
  return std::min(kOfMultiprocessor / threads / 8 * 8, kMost);
}

}  // namespace

void Block::prepare_registers(std::size_t groups) {
  LaunchBounds bounds = shape_.bounds;
  if (!has_launch_bounds) bounds = {static_cast<int>(groups) * 128, 1};
  registers_.clear();
  if (bounds.threads > 0) registers_.assign(groups, at_launch(bounds));
  register_pool_ = used_registers();
}

int Block::used_registers() const {
  int sum = 0;
  for (std::size_t group = 0; group < registers_.size(); ++group)
    sum += registers_[group] * std::min(128, threads() - static_cast<int>(group) * 128);
  return sum;
}

void Block::set_max_registers(int count, bool increase, Site site) {
  const char* const name = increase ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (count % 8 != 0 || count < kLeast || count > kMost)
    fault(site, fmt::format("{} {}: expected a multiple of 8 from {} to {}", name, count, kLeast, kMost));
  if (registers_.empty())
    fault(site, fmt::format("{} {} in a kernel without __launch_bounds__: ptxas ignores it, because it cannot tell how "
                            "many registers a thread starts with; state the bounds",
                            name, count));
  meet_warp_group(name, site, nullptr, [](void* const*) {});
  int& mine = registers_[static_cast<std::size_t>(running_->index / 128)];
  if (increase ? count < mine : count > mine)
    fault(site, fmt::format("{} {} with {} registers a thread: expected {} {}", name, count, mine,
                            increase ? "at least" : "at most", mine));
  const int least = 128 * count + (threads() - 128) * kLeast;
  if (increase && least > register_pool_)
    fault(site,
          fmt::format("{} {} can never succeed: with {} in all other threads the block needs {} registers; it was "
                      "launched with {}",
                      name, count, kLeast, least, register_pool_));
  while (count > mine && used_registers() + (count - mine) * 128 > register_pool_) {
    register_waits_.push_back({running_, count});
    wait("registers to be released (setmaxnreg.inc)", site);
  }
  mine = count;
  if (increase) return;
  for (const RegisterWait& waiting : register_waits_) wake(*waiting.fiber);
  register_waits_.clear();
}

std::string Block::register_report() const {
  if (register_waits_.empty()) return {};
  std::string held;
  for (const int count : registers_) held += fmt::format("{}{}", held.empty() ? "" : ", ", count);
  return fmt::format(
      "; setmaxnreg.inc {} needs more registers than are left: the warp groups have {} a thread, {} of "
      "the {} that the block was launched with; ask for fewer, or give more back",
      register_waits_.front().count, held, used_registers(), register_pool_);
}

}  // namespace trireme::cuda::emu
