// Shared memory of a block: every byte is a NaN until written, every allocation ends in a red zone, and what goes
// through the device header is checked for bounds and alignment. Two copies are kept: what threads see, and what the
// asynchronous proxy sees. The second changes only at a proxy fence, so a forgotten fence reads NaN or old data.
#include <fmt/core.h>

#include <cstring>

#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

namespace {
constexpr std::size_t kRedZone = 128;

std::size_t round_up(std::size_t value, std::size_t multiple) { return (value + multiple - 1) / multiple * multiple; }
}  // namespace

void Block::add_range(SharedRange range) {
  ranges_.push_back(range);
  const std::size_t before = shared_end_;
  shared_end_ = range.begin + range.bytes + kRedZone;
  if (shared_end_ > kSharedSpan || shared_used_ > kSharedBytes)
    fault(range.site, fmt::format("{} bytes of shared memory; a block has at most {}", shared_used_, kSharedBytes));
  // Every bit set is a NaN in each floating format, and -1 as an integer.
  std::memset(shared_ + before, 0xff, shared_end_ - before);
  std::memset(async_view_ + before, 0xff, shared_end_ - before);
}

std::byte* Block::dynamic_shared(std::size_t alignment, Site site) {
  if (dynamic_alignment_ == 0) {
    // An odd multiple of what was asked for: code that relies on more than that fails here.
    dynamic_begin_ = round_up(shared_end_, alignment);
    if (alignment < 1024 && dynamic_begin_ / alignment % 2 == 0) dynamic_begin_ += alignment;
    dynamic_alignment_ = alignment;
    shared_used_ = round_up(shared_used_, alignment) + shape_.dynamic_shared;
    add_range({site, nullptr, dynamic_begin_, shape_.dynamic_shared});
  }
  if (dynamic_alignment_ != alignment)
    fault(site,
          fmt::format("dynamic shared memory aligned to {} here and to {} before", alignment, dynamic_alignment_));
  return shared_ + dynamic_begin_;
}

std::byte* Block::static_shared(const void* declaration, std::size_t bytes, std::size_t alignment, Site site) {
  for (const SharedRange& range : ranges_) {
    if (range.declaration != declaration) continue;
    if (range.bytes != bytes)
      fault(site,
            fmt::format("{} bytes of shared memory here, and {} when another thread was here", bytes, range.bytes));
    return shared_ + range.begin;
  }
  const std::size_t begin = round_up(shared_end_, alignment);
  shared_used_ = round_up(shared_used_, alignment) + bytes;
  add_range({site, declaration, begin, bytes});
  return shared_ + begin;
}

std::uint32_t Block::check_shared_address(std::uint64_t address, std::size_t bytes, const char* what, Site site) const {
  for (const SharedRange& range : ranges_)
    if (address >= range.begin && address + bytes <= range.begin + range.bytes)
      return static_cast<std::uint32_t>(address);
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
  const auto address = static_cast<std::size_t>(pointer - shared_);
  for (const SharedRange& range : ranges_)
    if (address >= range.begin && address < range.begin + range.bytes)
      return fmt::format("byte {} of the shared memory of {}", address - range.begin, place(range.site));
  return fmt::format("shared address {}", address);
}

void Block::publish_to_async_proxy() {
  if (race_ != nullptr) race_->proxy_fence();
  if (shared_end_ > 0) std::memcpy(async_view_, shared_, shared_end_);
}

void Block::check_red_zones() const {
  for (const SharedRange& range : ranges_)
    for (std::size_t i = 0; i < kRedZone; ++i)
      if (shared_[range.begin + range.bytes + i] != std::byte{0xff})
        fault(range.site, fmt::format("{} bytes of shared memory allocated here are written {} bytes past their end",
                                      range.bytes, i));
}

}  // namespace trireme::cuda::emu
