// What ranks contribute to a sum.
// Read next: examples/cuda_lab/rank_order/ladder.h.
#pragma once

#include "examples/cuda_lab/rank_order/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::rank_order {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {ranks, values of each}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::rank_order::levels()),
        rows_(size_of(sizes[0])),
        count_(size_of(sizes[1])),
        x_(rows_ * count_),
        y_(count_),
        sums_(count_) {
    fill(x_, Uniform(1));
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    spoil(sums_);
    problem_ = {static_cast<int>(rows_), static_cast<std::int64_t>(count_), x_.data(), y_.data(), sums_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t i = 0; i < count_; ++i) {
      double sum = 0;
      for (std::size_t row = 0; row < rows_; ++row) sum += x_.at(row * count_ + i);
      all.push_back({y_.at(i), sum, accepted_bf16(sum)});
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  std::size_t rows_, count_;
  Array<bf16> x_, y_;
  Array<float> sums_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::rank_order
