// Rows of scores, and their softmax in f64.
// Read next: examples/cuda_lab/softmax/ladder.h.
#pragma once

#include "examples/cuda_lab/softmax/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::softmax {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, width}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::softmax::levels()),
        rows_(size_of(sizes[0])),
        width_(size_of(sizes[1])),
        x_(rows_ * width_),
        y_(rows_ * width_),
        top_(rows_),
        sum_(rows_) {
    const Uniform random(1);
    fill(x_, [&](std::size_t i) { return 8 * random(i); });
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    spoil(top_);
    spoil(sum_);
    problem_ = {
        static_cast<std::int64_t>(rows_), static_cast<int>(width_), x_.data(), y_.data(), top_.data(), sum_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t begin = 0; begin < rows_ * width_; begin += width_) {
      double top = -INFINITY, sum = 0;
      for (std::size_t i = begin; i < begin + width_; ++i) top = std::max(top, x_.at(i));
      for (std::size_t i = begin; i < begin + width_; ++i) sum += std::exp(x_.at(i) - top);
      for (std::size_t i = begin; i < begin + width_; ++i) {
        const double y = std::exp(x_.at(i) - top) / sum;
        all.push_back({y_.at(i), y, accepted_bf16(y)});
      }
    }
    return all;
  }

 private:
  std::size_t rows_, width_;
  Array<bf16> x_, y_;
  Array<float> top_, sum_;
};

}  // namespace trireme::cuda::lab::softmax
