// Shared memory of a block: every byte is NaN until written, a zone lies before the first allocation and after each,
// and accesses through the device header are checked for bounds and alignment. AddressSanitizer builds poison all
// memory outside allocations. There are two copies: what threads see, and what the asynchronous proxy sees. The second
// changes only at a proxy fence, so a forgotten fence reads NaN or old data.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cuda/emu/race.h"
#include "cuda/emu/zone.h"

namespace trireme::cuda::emu {

namespace {
constexpr std::size_t kZone = 1024;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The content of a zone that begins at a multiple of kZonePeriod, repeated in longer zones.
constexpr auto kPattern = [] {
  std::array<unsigned char, kZonePeriod * 64> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = zone_byte(i);
  return bytes;
}();

/// Calls f(begin, bytes, pattern) for pieces of [begin, end) with their expected content.
template <class F>
void for_each_piece(std::size_t begin, std::size_t end, F&& f) {
  while (begin < end) {
    const std::size_t phase = begin % kZonePeriod, bytes = std::min(end - begin, kPattern.size() - phase);
    f(begin, bytes, kPattern.data() + phase);
    begin += bytes;
  }
}
}  // namespace

void Block::fill_zone(std::size_t begin, std::size_t end) {
  if (zones_are_poisoned) return;
  for_each_piece(begin, end, [&](std::size_t at, std::size_t bytes, const unsigned char* pattern) {
    std::memcpy(shared_ + at, pattern, bytes);
  });
}

// A GPU refuses such a launch. Here the static memory is known only when a thread comes to its declaration.
void Block::check_shared_limit(Site site) const {
  const std::size_t unseen = dynamic_alignment_ == 0 ? shape_.dynamic_shared : 0;  // the launch asked for it
  const std::size_t used = shared_used_ + unseen;
  if (used <= shape_.most_shared()) return;
  if (used > shape_.limits.shared_per_block)
    fault(site, fmt::format("{} bytes of shared memory; a block has at most {}", used, shape_.limits.shared_per_block));
  fault(site, fmt::format("{} bytes of static and dynamic shared memory without the opt-in; expected at most {}; set "
                          "cudaFuncAttributeMaxDynamicSharedMemorySize before the launch",
                          used, kSharedByDefault));
}

void Block::add_range(SharedRange range) {
  const std::size_t before = shared_end_;
  ranges_.push_back(range);
  shared_end_ = range.end() + kZone;
  check_shared_limit(range.site);
  if (shared_end_ > kSharedSpan)
    fault(range.site, fmt::format("{} arrays in shared memory and the zones around them need {} bytes; the emulator "
                                  "has {}. Declare fewer arrays",
                                  ranges_.size(), shared_end_, kSharedSpan));
  fill_zone(before, range.begin);
  fill_zone(range.end(), shared_end_);
  unpoison(shared_ + range.begin, range.bytes);
  // Every bit set is a NaN in each floating format, and -1 as an integer.
  std::memset(shared_ + range.begin, 0xff, range.bytes);
  std::memset(async_view_ + range.begin, 0xff, range.bytes);
}

std::byte* Block::dynamic_shared(const char* name, std::size_t alignment, Site site) {
  if (dynamic_alignment_ == 0) {
    // An odd multiple of the requested alignment: code that relies on more alignment fails here.
    dynamic_begin_ = round_up(std::max(shared_end_, kZone), alignment);
    if (alignment < 1024 && dynamic_begin_ / alignment % 2 == 0) dynamic_begin_ += alignment;
    dynamic_alignment_ = alignment;
    shared_used_ = round_up(shared_used_, alignment) + shape_.dynamic_shared;
    add_range({site, {name, 1, nullptr}, dynamic_begin_, shape_.dynamic_shared});
  }
  if (dynamic_alignment_ != alignment)
    fault(site,
          fmt::format("dynamic shared memory aligned to {} here and to {} before", alignment, dynamic_alignment_));
  return shared_ + dynamic_begin_;
}

std::byte* Block::static_shared(const SharedArray& array, std::size_t bytes, std::size_t alignment, Site site) {
  for (const SharedRange& range : ranges_) {
    if (range.array.declaration != array.declaration) continue;
    if (range.bytes != bytes)
      fault(site,
            fmt::format("{} bytes of shared memory here, and {} when another thread was here", bytes, range.bytes));
    return shared_ + range.begin;
  }
  const std::size_t begin = round_up(std::max(shared_end_, kZone), alignment);
  shared_used_ = round_up(shared_used_, alignment) + bytes;
  add_range({site, array, begin, bytes});
  return shared_ + begin;
}

const SharedRange* Block::shared_range(std::uint64_t address, std::size_t bytes) const {
  for (const SharedRange& range : ranges_)
    if (address >= range.begin && address + bytes <= range.end()) return &range;
  return nullptr;
}

std::uint32_t Block::check_shared_address(std::uint64_t address, std::size_t bytes, const char* what, Site site) const {
  if (shared_range(address, bytes) != nullptr) return static_cast<std::uint32_t>(address);
  fault(site,
        fmt::format("{}: {} bytes at shared address {} are outside every shared allocation", what, bytes, address));
}

std::uint32_t Block::check_shared(const void* pointer, std::size_t bytes, std::size_t alignment, const char* what,
                                  Site site) const {
  const auto address = static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - shared_);
  if (address % alignment != 0)
    fault(site, fmt::format("{}: shared address {} is not a multiple of {}", what, address, alignment));
  return check_shared_address(address, bytes, what, site);
}

std::string Block::shared_place(const std::byte* pointer) const {
  const std::int64_t address = pointer - shared_;
  const auto distance = [address](const SharedRange& range) {
    const auto begin = static_cast<std::int64_t>(range.begin), end = static_cast<std::int64_t>(range.end());
    return std::max({begin - address, address - end + 1, std::int64_t{0}});
  };
  const auto range = std::ranges::min_element(ranges_, {}, distance);
  if (range == ranges_.end()) return fmt::format("shared address {}", address);
  const auto bytes = static_cast<std::int64_t>(range->array.element_bytes);
  const std::int64_t offset = address - static_cast<std::int64_t>(range->begin);
  const std::int64_t element = (offset - (offset < 0 ? bytes - 1 : 0)) / bytes;
  return fmt::format(
      "{}[{}] of the {}shared memory of {}", range->array.name, element,
      distance(*range) == 0 ? "" : fmt::format("{} elements of ", range->bytes / range->array.element_bytes),
      place(range->site));
}

void Block::publish_to_async_proxy() {
  if (race_ != nullptr) race_->proxy_fence();
  for (const SharedRange& range : ranges_) std::memcpy(async_view_ + range.begin, shared_ + range.begin, range.bytes);
}

void Block::zone_fault(const SharedRange* before, const SharedRange* after, std::size_t written) const {
  const std::size_t past = before == nullptr ? kSharedSpan : written - before->end();
  const std::size_t short_of = after == nullptr ? kSharedSpan : after->begin - written;
  const SharedRange& range = past < short_of ? *before : *after;
  const std::string where = past < short_of ? fmt::format("{} bytes past their end", past)
                                            : fmt::format("{} bytes before their start", short_of);
  fault(range.site, fmt::format("{} bytes of shared memory allocated here are written {}", range.bytes, where));
}

void Block::check_zones() const {
  if (zones_are_poisoned || ranges_.empty()) return;
  for (std::size_t i = 0; i <= ranges_.size(); ++i) {
    const SharedRange* const before = i == 0 ? nullptr : &ranges_[i - 1];
    const SharedRange* const after = i == ranges_.size() ? nullptr : &ranges_[i];
    const std::size_t begin = before == nullptr ? 0 : before->end();
    for_each_piece(begin, after == nullptr ? shared_end_ : after->begin,
                   [&](std::size_t at, std::size_t bytes, const unsigned char* pattern) {
                     if (std::memcmp(shared_ + at, pattern, bytes) == 0) return;
                     std::size_t first = at;
                     while (shared_[first] == std::byte{pattern[first - at]}) ++first;
                     zone_fault(before, after, first);
                   });
  }
}

}  // namespace trireme::cuda::emu
