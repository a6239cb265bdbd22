// Rows with many equal values and some of -infinity, and their columns in order.
// Read next: examples/cuda_lab/top_k/ladder.h.
#pragma once

#include <numeric>

#include "examples/cuda_lab/top_k/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::top_k {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, width, k}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::top_k::levels()),
        rows_(size_of(sizes[0])),
        width_(size_of(sizes[1])),
        k_(size_of(sizes[2])),
        x_(rows_ * width_),
        chosen_(rows_ * k_) {
    const Uniform random(1);
    fill(x_, [&](std::size_t i) { return i % 11 == 3 ? -INFINITY : std::floor(20 * random(i)); });
    Attempt::reset();
  }
  void reset() override {
    fill(chosen_, [](std::size_t) { return -1; });
    problem_ = {static_cast<std::int64_t>(rows_), static_cast<int>(width_), static_cast<int>(k_), x_.data(),
                chosen_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    std::vector<std::size_t> order(width_);
    for (std::size_t row = 0; row < rows_; ++row) {
      std::iota(order.begin(), order.end(), std::size_t{0});
      const auto larger = [&](std::size_t a, std::size_t b) {
        return x_.at(row * width_ + a) > x_.at(row * width_ + b);
      };
      std::stable_sort(order.begin(), order.end(), larger);
      for (std::size_t i = 0; i < k_; ++i)
        all.push_back({static_cast<double>(chosen_.value(row * k_ + i)), static_cast<double>(order[i]), 0.5});
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  std::size_t rows_, width_, k_;
  Array<float> x_;
  Array<std::int32_t> chosen_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::top_k
