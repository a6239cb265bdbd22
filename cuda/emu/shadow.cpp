// Shadow memory and the ranges of global memory that tests watch. See cuda/emu/shadow.h and cuda/emu/race.h.
#include "cuda/emu/shadow.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

Shadow::Shadow(std::size_t bytes) {
  const std::size_t words = (bytes + kWord - 1) / kWord;
  mapped_ = (words + words * kWord) * sizeof(Cell);
  void* const memory =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ExitCode::internal, "emu", "no {} bytes of address space for a shadow", mapped_);
  words_ = static_cast<Cell*>(memory);
  bytes_ = words_ + words;
}

Shadow::~Shadow() { munmap(words_, mapped_); }

bool Shadow::is_whole(std::size_t word) {
  if (!is_divided(word)) return true;
  const Cell* const bytes = bytes_ + word * kWord;
  if (!std::all_of(bytes + 1, bytes + kWord, [&](const Cell& cell) { return cell == bytes[0]; })) return false;
  words_[word] = bytes[0];
  if (bytes[0].more_reads != nullptr) bytes[0].more_reads->cells -= kWord - 1;
  return true;
}

void Shadow::divide(std::size_t word) {
  if (is_divided(word)) return;
  Cell& whole = words_[word];
  std::fill_n(bytes_ + word * kWord, kWord, whole);
  if (whole.more_reads != nullptr) whole.more_reads->cells += kWord - 1;
  whole = {{}, {}, &divided_};
}

void Shadow::own_reads(Cell& cell, std::size_t cells) {
  Reads* const shared = cell.more_reads;
  if (shared != nullptr && shared->cells == cells) return;
  if (unused_.empty()) unused_.push_back(&reads_.emplace_back());
  cell.more_reads = unused_.back();
  unused_.pop_back();
  cell.more_reads->cells = cells;
  if (shared == nullptr) return;
  cell.more_reads->list = shared->list;
  shared->cells -= cells;
}

void Shadow::drop_reads(Cell& cell, std::size_t cells) {
  Reads* const reads = std::exchange(cell.more_reads, nullptr);
  if (reads == nullptr || (reads->cells -= cells) > 0) return;
  reads->list.clear();
  unused_.push_back(reads);
}

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
