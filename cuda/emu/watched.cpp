// See cuda/emu/watched.h.
#include "cuda/emu/watched.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace trireme::cuda::emu {

namespace {

struct Watched {
  std::mutex mutex;
  std::map<const std::byte*, WatchedBytes> ranges;
};
Watched& watched() {
  static Watched all;
  return all;
}

/// Of the tensor's elements; below 0 before its start.
std::int64_t element_at(const WatchedBytes& bytes, std::size_t byte) {
  const auto size = static_cast<std::int64_t>(bytes.element);
  const auto distance = static_cast<std::int64_t>(byte) - static_cast<std::int64_t>(bytes.first);
  return distance >= 0 ? distance / size : -((-distance + size - 1) / size);
}

}  // namespace

WatchedMemory::WatchedMemory(const void* begin, WatchedBytes bytes) : begin_(static_cast<const std::byte*>(begin)) {
  const std::lock_guard lock(watched().mutex);
  watched().ranges.emplace(begin_, bytes);
}

WatchedMemory::~WatchedMemory() {
  const std::lock_guard lock(watched().mutex);
  watched().ranges.erase(begin_);
}

std::string WatchedRange::place(const std::byte* address) const {
  const std::size_t byte = byte_of(address);
  if (bytes.name == nullptr) return fmt::format("byte {} of {} bytes of global memory", byte, bytes.bytes);
  return fmt::format("{}[{}]", bytes.name, element_at(bytes, byte));
}

std::string WatchedRange::place_outside(const std::byte* address, std::size_t access) const {
  if (bytes.name == nullptr) return place(address) + ", outside the tensor there";
  std::string text = place(address);
  if (access > bytes.element) text += fmt::format(" to {}", place(address + access - 1));
  return fmt::format("{}, outside of {} [{}]", text, bytes.name, (bytes.last - bytes.first) / bytes.element);
}

WatchedRanges::WatchedRanges() {
  const std::lock_guard lock(watched().mutex);
  for (const auto& [begin, bytes] : watched().ranges) ranges_.push_back({begin, bytes});
}

std::size_t WatchedRanges::find(const std::byte* address) const {
  if (last_ < ranges_.size() && ranges_[last_].holds(address)) return last_;
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                      [](const std::byte* a, const WatchedRange& range) { return a < range.begin; });
  if (after == ranges_.begin() || !(after - 1)->holds(address)) return none;
  return last_ = static_cast<std::size_t>(after - 1 - ranges_.begin());
}

}  // namespace trireme::cuda::emu
