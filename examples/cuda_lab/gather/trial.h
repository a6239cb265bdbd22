// Rows, and the index of a row for each slot: some rows occur several times, some never, and some slots have no row.
// Read next: examples/cuda_lab/gather/ladder.h.
#pragma once

#include "examples/cuda_lab/gather/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::gather {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, picks, width}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::gather::levels()),
        rows_(size_of(sizes[0])),
        picks_(size_of(sizes[1])),
        width_(size_of(sizes[2])),
        x_(rows_ * width_),
        y_(picks_ * width_),
        index_(picks_) {
    fill(x_, Uniform(1));
    fill(index_, [this](std::size_t s) { return row_of(s); });
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    problem_ = {x_.data(), index_.data(), static_cast<int>(rows_), static_cast<int>(picks_), static_cast<int>(width_),
                y_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t s = 0; s < picks_; ++s)
      for (std::size_t c = 0; c < width_; ++c) {
        const std::int32_t row = row_of(s);
        const double expected = row < 0 ? 0 : x_.at(static_cast<std::size_t>(row) * width_ + c);
        all.push_back({y_.at(s * width_ + c), expected, 1e-9});
      }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }
  std::int32_t row_of(std::size_t slot) const {
    return slot % 13 == 12 ? -1 : static_cast<std::int32_t>(slot * 7919 % rows_);
  }

  std::size_t rows_, picks_, width_;
  Array<bf16> x_, y_;
  Array<std::int32_t> index_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::gather
