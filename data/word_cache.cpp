#include "data/word_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace trireme {

namespace {

constexpr std::size_t kSlots = 1 << 16;

}  // namespace

void WordCache::Slot::put(std::string_view word, std::span<const std::int32_t> its_ids) {
  length = static_cast<std::uint8_t>(word.size());
  count = static_cast<std::uint8_t>(its_ids.size());
  text.fill(0);
  std::copy(word.begin(), word.end(), text.begin());
  std::copy(its_ids.begin(), its_ids.end(), ids.begin());
}

void WordCache::Free::operator()(Slot* slots) const { std::free(slots); }

// Zeros of the system: pages that no word needs take no memory.
WordCache::WordCache() : slots_(static_cast<Slot*>(std::calloc(kSlots, sizeof(Slot)))) {
  static_assert(sizeof(Slot) == 64, "one line of the processor's cache");
  if (!slots_) throw std::bad_alloc();
}

WordCache::Slot& WordCache::slot(std::string_view word) const {
  std::array<std::uint64_t, 4> words{};
  std::memcpy(words.data(), word.data(), word.size());
  std::uint64_t key = word.size();
  for (const std::uint64_t part : words) {
    key = (key ^ part) * 0x9E3779B97F4A7C15U;
    key ^= key >> 29;
  }
  return slots_[(key >> 7) % kSlots];
}

WordCaches::Lease::Lease(WordCaches& caches) : caches_(caches) {
  const std::lock_guard lock(caches.mutex_);
  if (caches.free_.empty()) {
    cache_ = std::make_unique<WordCache>();
  } else {
    cache_ = std::move(caches.free_.back());
    caches.free_.pop_back();
  }
}

WordCaches::Lease::~Lease() {
  const std::lock_guard lock(caches_.mutex_);
  caches_.free_.push_back(std::move(cache_));
}

}  // namespace trireme
