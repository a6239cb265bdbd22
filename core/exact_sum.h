// ExactSum: adds non-negative f64 numbers without rounding. The sum therefore depends neither on the order in which
// they are added nor on how they are grouped: over threads, shards, ranks or pipeline stages.
//
// The sum is a fixed-point number: 32 bits in each 64-bit word, over the whole range of f64. A number of 53 bits is
// added to three words; what exceeds 32 bits stays in its word until carry(). Sums of words are integer sums, which are
// exact, so ranks may all-reduce them (as i64). Read next: core/cpu/reduce.cpp,
// parallel/data_parallel/gradient_norm.cpp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace trireme {

class ExactSum {
 public:
  static constexpr std::size_t digits = 68;         ///< 32 bits each: f64 spans 2^-1074 to 2^1024, and sums need more
  static constexpr std::size_t words = digits + 2;  ///< plus counts of infinities and NaNs
  using Words = std::array<std::uint64_t, words>;

  /// x: not negative, or NaN.
  void add(double x) {
    constexpr unsigned fraction_bits = 52, special = 0x7FF;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<unsigned>(bits >> fraction_bits) & special;
    const std::uint64_t fraction = bits & ((std::uint64_t{1} << fraction_bits) - 1);
    if (exponent == special) {
      ++words_[fraction == 0 ? infinities : nans];
      return;
    }
    const std::uint64_t integer = exponent == 0 ? fraction : fraction | std::uint64_t{1} << fraction_bits;
    const unsigned place = exponent == 0 ? 0 : exponent - 1;  // x = integer * 2^(place - 1074)
    const unsigned shift = place % 32;
    std::uint64_t* const first = &words_[place / 32];
    const std::uint64_t low = integer << shift;
    first[0] += low & 0xFFFFFFFFU;
    first[1] += low >> 32U;
    first[2] += integer >> 1U >> (63 - shift);
    if (++added_ == most_added) carry();
  }
  void add(const ExactSum& other);

  /// The sum as f64, within 1 unit in the last place; equal sums give equal values. NaN or infinity if one was added.
  double value() const;

  /// Propagates carries, so that each word is below 2^32. Up to 2^31 such sums may then be added word by word.
  void carry();
  Words& all() { return words_; }
  const Words& all() const { return words_; }

 private:
  static constexpr std::size_t infinities = digits, nans = digits + 1;
  static constexpr std::uint32_t most_added = 1U << 31U;  // each adds less than 2^32 to a word

  Words words_{};
  std::uint32_t added_ = 0;  // since the last carry()
};

}  // namespace trireme
