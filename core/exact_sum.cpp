#include "core/exact_sum.h"

#include <cmath>
#include <limits>

namespace trireme {

void ExactSum::carry() {
  std::uint64_t carried = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const std::uint64_t sum = words_[i] + carried;
    words_[i] = sum & 0xFFFFFFFFU;
    carried = sum >> 32U;
  }
  added_ = 0;
}

void ExactSum::add(const ExactSum& other) {
  ExactSum carried = other;
  carried.carry();
  for (std::size_t i = 0; i < words; ++i) words_[i] += carried.words_[i];
  if (++added_ == most_added) carry();
}

double ExactSum::value() const {
  if (words_[nans] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (words_[infinities] > 0) return std::numeric_limits<double>::infinity();
  ExactSum carried = *this;
  carried.carry();
  double sum = 0;  // from the smallest: each addition's rounding error is below the next word's last bit
  for (std::size_t i = 0; i < digits; ++i) {
    if (carried.words_[i] > 0)
      sum += std::ldexp(static_cast<double>(carried.words_[i]), static_cast<int>(32 * i) - 1074);
  }
  return sum;
}

}  // namespace trireme
