// Checks launches and starts them, and reads launch bounds: see cuda/emu/launch.h.
#include "cuda/emu/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "core/device_work.h"
#include "core/error.h"
#include "cuda/emu/cluster.h"
#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"

// The linker's list of the addresses where nops begin. Without a kernel that has bounds there is none: both are null.
extern "C" {
extern const unsigned char* const __start___patchable_function_entries[] __attribute__((weak, visibility("hidden")));
extern const unsigned char* const __stop___patchable_function_entries[] __attribute__((weak, visibility("hidden")));
}

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
  if (shape.cluster == 1) return;
  require(shape.limits.major >= 9, shape.kernel,
          "clusters of {} blocks on a device of compute capability {}.{}; expected 9.0 or later; launch blocks alone",
          shape.cluster, shape.limits.major, shape.limits.minor);
  require(shape.cluster >= 1 && shape.cluster <= 8, shape.kernel, "clusters of {} blocks; expected 1 to 8",
          shape.cluster);
  require(shape.grid.x % static_cast<unsigned>(shape.cluster) == 0, shape.kernel,
          "{} blocks in x, in clusters of {}; expected a multiple", shape.grid.x, shape.cluster);
}

}  // namespace

LaunchBounds launch_bounds_of(const void* kernel) {
  if (!has_launch_bounds) return {};
  const auto* const entry = static_cast<const unsigned char*>(kernel);
  const unsigned char* first = nullptr;  // the last list entry before the kernel
  for (auto nops = __start___patchable_function_entries; nops != __stop___patchable_function_entries; ++nops)
    if (*nops<entry&& * nops> first) first = *nops;
  constexpr unsigned char kNop = 0x90, kBranchTarget[] = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64, with -fcf-protection
  if (first == nullptr || !std::all_of(first, entry, [](unsigned char byte) { return byte == kNop; })) return {};
  LaunchBounds bounds{static_cast<int>(entry - first), 0};
  const unsigned char* after = entry;
  if (std::memcmp(after, kBranchTarget, sizeof(kBranchTarget)) == 0) after += sizeof(kBranchTarget);
  while (after[bounds.blocks] == kNop) ++bounds.blocks;
  return bounds;
}

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
  const auto width = static_cast<std::uint64_t>(shape.cluster);
  const std::uint64_t clusters = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z / width;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::map<std::uint64_t, std::exception_ptr> failures;
  const auto race = race_checking ? std::make_unique<RaceLaunch>(shape.grid, shape.block) : nullptr;
  Traffic* const traffic = traffic_here;
  const auto work = [&] {
    std::vector<std::unique_ptr<Stacks>> stacks;
    for (std::uint64_t i = 0; i < width; ++i)
      stacks.push_back(std::make_unique<Stacks>(static_cast<int>(shape.block.x * shape.block.y * shape.block.z)));
    for (std::uint64_t i = next++; i < clusters; i = next++) {
      // Results must not depend on the order of blocks: half of the seeds begin with the last block.
      const std::uint64_t first = (schedule.seed % 2 == 1 ? clusters - 1 - i : i) * width;
      try {
        Cluster cluster(shape, stacks, body);
        if (race != nullptr) cluster.check_races(*race, static_cast<std::uint32_t>(first));
        if (traffic != nullptr) cluster.count_traffic(*traffic);
        cluster.run(first, schedule);
        if (race != nullptr && !(race->races.empty() && race->strays.empty())) next = clusters;
      } catch (...) {
        const std::lock_guard lock(mutex);
        failures.emplace(first, std::current_exception());
        next = clusters;
      }
    }
  };
  // Race-checked blocks share the shadow of global memory; they run one after another, so that reports repeat. Counts of
  // all blocks are added to one sum.
  const std::uint64_t most =
      race != nullptr || traffic != nullptr ? 1 : std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t workers = std::min(clusters, most);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (race != nullptr) race->throw_races(shape.kernel, schedule.seed);
  if (!failures.empty()) std::rethrow_exception(failures.begin()->second);
  if (race != nullptr) race->require_accesses(shape.kernel);
}

}  // namespace trireme::cuda::emu
