// Rows of gates and values to be gated, and the same in f64.
// Read next: examples/cuda_lab/swiglu/ladder.h.
#pragma once

#include "examples/cuda_lab/swiglu/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::swiglu {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, width}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::swiglu::levels()),
        rows_(size_of(sizes[0])),
        width_(size_of(sizes[1])),
        x_(rows_ * 2 * width_),
        y_(rows_ * width_),
        silu_(rows_ * width_) {
    const Uniform random(1);
    fill(x_, [&](std::size_t i) { return 4 * random(i); });
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    spoil(silu_);
    problem_ = {static_cast<std::int64_t>(rows_), static_cast<std::int64_t>(width_), x_.data(), y_.data(),
                silu_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t r = 0; r < rows_; ++r)
      for (std::size_t c = 0; c < width_; ++c) {
        const double gate = x_.at(r * 2 * width_ + c), up = x_.at((r * 2 + 1) * width_ + c);
        const double y = gate / (1 + std::exp(-gate)) * up;
        all.push_back({y_.at(r * width_ + c), y, accepted_bf16(y)});
      }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  std::size_t rows_, width_;
  Array<bf16> x_, y_;
  Array<float> silu_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::swiglu
