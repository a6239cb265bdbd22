// Rows of experts that are not equally busy, and their products in f64.
// Read next: examples/cuda_lab/grouped/ladder.h.
#pragma once

#include "examples/cuda_lab/grouped/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::grouped {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {groups, rows, n, k}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::grouped::levels()),
        groups_(size_of(sizes[0])),
        rows_(size_of(sizes[1])),
        n_(size_of(sizes[2])),
        k_(size_of(sizes[3])),
        starts_(starts_of(sizes[0], sizes[1])) {
    fill(x_, Uniform(1));
    fill(w_, Uniform(2));
    fill(offsets_, [this](std::size_t g) { return starts_[g]; });
    Attempt::reset();
  }
  void reset() override {
    for (auto* values : {&y_, &padded_x_, &padded_y_}) spoil(*values);
    problem_ = {static_cast<int>(groups_),
                static_cast<int>(rows_),
                static_cast<int>(n_),
                static_cast<int>(k_),
                x_.data(),
                w_.data(),
                y_.data(),
                offsets_.data(),
                starts_,
                padded_x_.data(),
                padded_y_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t g = 0; g < groups_; ++g)
      for (auto row = static_cast<std::size_t>(starts_[g]); row < static_cast<std::size_t>(starts_[g + 1]); ++row)
        for (std::size_t j = 0; j < n_; ++j) {
          double sum = 0;
          for (std::size_t l = 0; l < k_; ++l) sum += x_.at(row * k_ + l) * w_.at((g * n_ + j) * k_ + l);
          all.push_back({y_.at(row * n_ + j), sum, accepted_bf16(sum)});
        }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  /// The rows of groups fall evenly: the first has about twice the average, the last next to none.
  static std::vector<int> starts_of(std::int64_t groups, std::int64_t rows) {
    std::vector<int> starts;
    for (std::int64_t g = 0; g <= groups; ++g) {
      const std::int64_t left = groups - g;
      starts.push_back(static_cast<int>(rows - rows * left * left / (groups * groups)));
    }
    return starts;
  }
  std::size_t padded_rows() const {
    std::size_t most = 0;
    for (std::size_t g = 0; g < groups_; ++g)
      most = std::max(most, static_cast<std::size_t>(starts_[g + 1] - starts_[g]));
    return groups_ * most;
  }

  std::size_t groups_, rows_, n_, k_;
  std::vector<int> starts_;
  Array<bf16> x_{rows_ * k_}, w_{groups_ * n_ * k_}, y_{rows_ * n_};
  Array<int> offsets_{groups_ + 1};
  Array<bf16> padded_x_{padded_rows() * k_}, padded_y_{padded_rows() * n_};
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::grouped
