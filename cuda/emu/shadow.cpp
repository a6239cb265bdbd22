// Shadow memory and the ranges of global memory that tests watch. See cuda/emu/shadow.h and cuda/emu/race.h.
#include "cuda/emu/shadow.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

Shadow::Shadow(std::size_t bytes) : bytes_(bytes * sizeof(Cell)) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ExitCode::internal, "emu", "no {} bytes of address space for a shadow", bytes_);
  cells_ = static_cast<Cell*>(memory);
}

Shadow::~Shadow() { munmap(cells_, bytes_); }

namespace {

struct Watched {
  std::mutex mutex;
  std::map<const std::byte*, WatchedBytes> ranges;
};
Watched& watched() {
  static Watched all;
  return all;
}

}  // namespace

WatchedMemory::WatchedMemory(const void* begin, WatchedBytes bytes) : begin_(static_cast<const std::byte*>(begin)) {
  const std::lock_guard lock(watched().mutex);
  watched().ranges[begin_] = bytes;
}

WatchedMemory::~WatchedMemory() {
  const std::lock_guard lock(watched().mutex);
  watched().ranges.erase(begin_);
}

RaceLaunch::RaceLaunch() {
  const std::lock_guard lock(watched().mutex);
  for (const auto& [begin, bytes] : watched().ranges) ranges_.push_back({begin, bytes, nullptr});
}

RaceLaunch::~RaceLaunch() = default;

RaceLaunch::Found RaceLaunch::find(const std::byte* address) {
  const auto holds = [&](const Range& range) {
    return address >= range.begin && address < range.begin + range.bytes.bytes;
  };
  if (last_ >= ranges_.size() || !holds(ranges_[last_])) {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                        [](const std::byte* a, const Range& range) { return a < range.begin; });
    if (after == ranges_.begin() || !holds(*(after - 1))) return {nullptr, 0, 0, false};
    last_ = static_cast<std::size_t>(after - 1 - ranges_.begin());
  }
  Range& range = ranges_[last_];
  if (range.shadow == nullptr) range.shadow = std::make_unique<Shadow>(range.bytes.bytes);
  const auto byte = static_cast<std::size_t>(address - range.begin);
  const bool outside = byte < range.bytes.first || byte >= range.bytes.last;
  return {range.shadow.get(), byte, range.bytes.bytes - byte, outside};
}

std::string RaceLaunch::place(const std::byte* address) {
  const Found found = find(address);
  return fmt::format("byte {} of {} bytes of global memory", found.byte, found.byte + found.left);
}

}  // namespace trireme::cuda::emu
