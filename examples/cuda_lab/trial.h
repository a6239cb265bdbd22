// A problem for a ladder of kernels: its inputs, the levels that can run on them, and a level's error
// against f64. The tests, cuda_lab and bench/cuda/shim.cu share it; they differ in where arrays lie, and so each has
// its own Array type. An Array<T> has a constructor from a count, size(), data() for kernels, and for the host set(i,
// value), value(i) and at(i), the last as double.
// Read next: examples/cuda_lab/ladders.h, and examples/cuda_lab/gradient_norm/trial.h for a trial.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab {

/// A value of a result; `accepted`: the error allowed by the precision of its computation and storage.
struct Checked {
  double got, expected, accepted;
};

class Trial {
 public:
  virtual ~Trial() = default;
  /// Restores the initial inputs, and overwrites results with wrong values.
  virtual void reset() = 0;
  virtual void run(std::size_t level, Stream stream) = 0;
  /// The results of the last run since a reset.
  virtual std::vector<Checked> results() = 0;

  /// The largest error against f64, relative to the accepted error: below 1 is right.
  double error() {
    double worst = 0;
    for (const Checked& value : results()) {
      const double distance = std::abs(value.got - value.expected) / value.accepted;
      worst = std::isnan(distance) ? 1e9 : std::max(worst, distance);
    }
    return worst;
  }
};

template <class Problem>
class TrialOf : public Trial {
 public:
  void run(std::size_t level, Stream stream) override { all_[level].run(problem_, stream); }

 protected:
  explicit TrialOf(std::span<const Level<Problem>> all) : all_(all) {}
  Problem problem_ = {};

 private:
  std::span<const Level<Problem>> all_;
};

/// Values in [-1, 1), from seed and position; they repeat, because large arrays would take long.
class Uniform {
 public:
  explicit Uniform(std::uint64_t seed) {
    for (std::size_t i = 0; i < kPeriod; ++i)
      values_.push_back(2.0F * static_cast<float>(random_uniform(seed, 1, i)) - 1.0F);
  }
  float operator()(std::size_t i) const { return values_[i % kPeriod]; }

 private:
  static constexpr std::size_t kPeriod = 4099;  // a prime: rows of equal values would hide mistakes
  std::vector<float> values_;
};

template <class Array, class Value>
void fill(Array& array, const Value& value) {
  for (std::size_t i = 0; i < array.size(); ++i) array.set(i, decltype(array.value(i))(value(i)));
}
template <class Array>
void spoil(Array& array) {
  fill(array, [](std::size_t) { return std::nanf(""); });
}

inline std::size_t size_of(std::int64_t rows, std::int64_t columns = 1) {
  return static_cast<std::size_t>(rows * columns);
}

/// Half a step of bf16 is at most 1/256 of a value; the rest covers earlier rounding in f32.
inline double accepted_bf16(double value) { return std::abs(value) / 256 + 1e-5; }
inline double accepted_f32(double value) { return 1e-5 * std::abs(value) + 1e-5; }

}  // namespace trireme::cuda::lab
