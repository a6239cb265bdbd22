// See cuda/emu/launch.h.
#include "cuda/emu/launch.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "core/device_work.h"
#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda {

namespace {
std::atomic<std::uint64_t> launches{0};
}

std::uint64_t launch_count() { return launches; }

}  // namespace trireme::cuda

namespace trireme::cuda::emu {

namespace {

thread_local Schedule schedule_here;

void check(const BlockShape& shape) {
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  require(threads >= 1 && threads <= 1024, shape.kernel, "{} threads per block; expected 1 to 1024", threads);
  require(shape.bounds.threads == 0 || threads <= static_cast<std::uint64_t>(shape.bounds.threads), shape.kernel,
          "{} threads per block; the kernel's __launch_bounds__ allow {}; launch fewer, or change the bounds", threads,
          shape.bounds.threads);
  require(shape.block.z <= 64, shape.kernel, "a block of {} threads in z; expected at most 64", shape.block.z);
  require(shape.grid.x >= 1 && shape.grid.y >= 1 && shape.grid.z >= 1, shape.kernel, "an empty grid");
  require(shape.grid.y <= 65535 && shape.grid.z <= 65535, shape.kernel, "grid y and z are at most 65535");
  require(shape.dynamic_shared <= shape.most_shared(), shape.kernel,
          "{} bytes of dynamic shared memory; a block has at most {}", shape.dynamic_shared, shape.most_shared());
}

Dim3 block_of(std::uint64_t linear, Dim3 grid) {
  return {static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
          static_cast<unsigned>(linear / grid.x / grid.y)};
}

}  // namespace

const char* name(Order order) {
  constexpr const char* names[] = {"fifo", "lifo", "random", "priorities"};
  return names[static_cast<int>(order)];
}

const char* name(Completion completion) {
  constexpr const char* names[] = {"early", "late", "random"};
  return names[static_cast<int>(completion)];
}

ScopedSchedule::ScopedSchedule(Schedule schedule) : previous_(schedule_here) { schedule_here = schedule; }
ScopedSchedule::~ScopedSchedule() { schedule_here = previous_; }
Schedule current_schedule() { return schedule_here; }

void run_grid(const BlockShape& shape, const std::function<void()>& body) {
  check(shape);
  ++launches;
  ++device_work().launches;
  const Schedule schedule = schedule_here;
  const std::uint64_t blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::map<std::uint64_t, std::exception_ptr> failures;
  const auto race = race_checking ? std::make_unique<RaceLaunch>() : nullptr;
  const auto work = [&] {
    const Stacks stacks(static_cast<int>(shape.block.x * shape.block.y * shape.block.z));
    for (std::uint64_t i = next++; i < blocks; i = next++) {
      // Results must not depend on the order of blocks: half of the seeds begin with the last block.
      const std::uint64_t linear = schedule.seed % 2 == 1 ? blocks - 1 - i : i;
      try {
        Block block(shape, stacks, body);
        if (race != nullptr) block.check_races(*race, static_cast<std::uint32_t>(linear));
        block.run(block_of(linear, shape.grid), schedule);
        if (race != nullptr && !(race->races.empty() && race->strays.empty())) next = blocks;
      } catch (...) {
        const std::lock_guard lock(mutex);
        failures.emplace(linear, std::current_exception());
        next = blocks;
      }
    }
  };
  // Race-checked blocks share the shadow of global memory; they run one after another, so that reports repeat.
  const std::uint64_t most = race != nullptr ? 1 : std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t workers = std::min(blocks, most);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (race != nullptr) race->throw_races(shape.kernel, schedule.seed);
  if (!failures.empty()) std::rethrow_exception(failures.begin()->second);
  if (race != nullptr) race->require_accesses(shape.kernel);
}

}  // namespace trireme::cuda::emu
