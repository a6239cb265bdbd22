// Cutting work and workspace into parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::cpu {

inline constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct IndexRange {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

/// Part `index` of `parts` near-equal parts of [0, extent).
inline IndexRange part_of(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  return {extent * index / parts, extent * (index + 1) / parts};
}

inline IndexRange part_of(IndexRange range, std::int64_t parts, std::int64_t index) {
  const IndexRange part = part_of(range.size(), parts, index);
  return {range.begin + part.begin, range.begin + part.end};
}

/// `team`, or 1 for work so small that waking threads costs more than they save: at most about 10 us on one thread.
inline int useful_team(std::int64_t flops, std::int64_t team) { return flops < (1 << 19) ? 1 : static_cast<int>(team); }

/// Hands out 64-byte aligned pieces of one allocation; without memory it only counts the elements needed.
template <class T>
class BumpAllocator {
 public:
  explicit BumpAllocator(T* memory = nullptr) : memory_(memory) {}
  /// `count` elements, of T unless another type is asked for.
  template <class U = T>
  U* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += divide_up(count * static_cast<std::int64_t>(sizeof(U)), 64 * static_cast<std::int64_t>(sizeof(T))) * 64;
    return reinterpret_cast<U*>(piece);
  }
  std::int64_t used() const { return used_; }  ///< elements

 private:
  T* memory_;
  std::int64_t used_ = 0;
};

}  // namespace trireme::cpu
