// A matrix to transpose.
// Read next: examples/cuda_lab/transpose/ladder.h.
#pragma once

#include "examples/cuda_lab/transpose/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::transpose {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, columns}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::transpose::levels()),
        rows_(size_of(sizes[0])),
        columns_(size_of(sizes[1])),
        x_(rows_ * columns_),
        y_(rows_ * columns_) {
    fill(x_, Uniform(1));
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    problem_ = {static_cast<int>(rows_), static_cast<int>(columns_), x_.data(), y_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t r = 0; r < rows_; ++r)
      for (std::size_t c = 0; c < columns_; ++c) all.push_back({y_.at(c * rows_ + r), x_.at(r * columns_ + c), 1e-9});
    return all;
  }

 private:
  std::size_t rows_, columns_;
  Array<bf16> x_, y_;
};

}  // namespace trireme::cuda::lab::transpose
