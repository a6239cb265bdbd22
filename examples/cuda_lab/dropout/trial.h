// Values to drop out; the CPU's random_uniform (core/random.h) decides which.
// Read next: examples/cuda_lab/dropout/ladder.h.
#pragma once

#include "examples/cuda_lab/dropout/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::dropout {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {values}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::dropout::levels()),
        x_(size_of(sizes[0])),
        y_(size_of(sizes[0])),
        numbers_(size_of(sizes[0])),
        mask_(size_of(sizes[0])),
        count_(sizes[0]) {
    fill(x_, Uniform(1));
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    spoil(numbers_);
    fill(mask_, [](std::size_t) { return 255; });
    problem_ = {count_, x_.data(), y_.data(), kP, kSeed, kStream, numbers_.data(), mask_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t i = 0; i < y_.size(); ++i) {
      const bool keeps = static_cast<double>(random_uniform(kSeed, kStream, i)) >= kP;
      const double y = keeps ? x_.at(i) / (1 - kP) : 0.0;
      all.push_back({y_.at(i), y, accepted_bf16(y)});
    }
    return all;
  }

 private:
  static constexpr double kP = 0.3;
  static constexpr std::uint64_t kSeed = 0x123456789abcdefU, kStream = stream_of("mlp.dropout");

  const Problem& problem() const override { return problem_; }

  Array<bf16> x_, y_;
  Array<float> numbers_;
  Array<std::uint8_t> mask_;
  std::int64_t count_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::dropout
