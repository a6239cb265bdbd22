// RandomChoices: a pure function of (seed, number of the case), so that a case can be drawn again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/random.h"

namespace trireme::explore {

class RandomChoices {
 public:
  RandomChoices(std::uint64_t seed, std::uint64_t number) : seed_(seed), stream_(number) {}

  std::uint32_t word() { return random_word(seed_, stream_, drawn_++); }
  /// Uniform in [0, n).
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(std::uint64_t{word()} * n >> 32); }
  /// Uniform in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::size_t>(high - low + 1)));
  }
  bool chance(double p) { return word() * 0x1p-32 < p; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[below(items.size())];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t seed_, stream_, drawn_ = 0;
};

}  // namespace trireme::explore
