// Rows to normalise, and their mean, rstd, h and y in f64.
// Read next: examples/cuda_lab/norm_forward/ladder.h.
#pragma once

#include "examples/cuda_lab/norm_forward/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::norm_forward {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, width, 1 for LayerNorm or 0 for RMSNorm}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::norm_forward::levels()),
        rows_(size_of(sizes[0])),
        width_(size_of(sizes[1])),
        layer_(sizes[2] != 0),
        x_(rows_ * width_),
        residual_(rows_ * width_),
        sum_(rows_ * width_),
        y_(rows_ * width_),
        gamma_(width_),
        beta_(width_),
        mean_(rows_),
        rstd_(rows_) {
    fill(x_, Uniform(1));
    fill(residual_, Uniform(2));
    fill(gamma_, Uniform(3));
    fill(beta_, Uniform(4));
    Attempt::reset();
  }
  void reset() override {
    spoil(sum_);
    spoil(y_);
    spoil(mean_);
    spoil(rstd_);
    problem_ = {layer_ ? Norm::layer : Norm::rms,
                static_cast<int>(rows_),
                static_cast<int>(width_),
                x_.data(),
                residual_.data(),
                sum_.data(),
                gamma_.data(),
                layer_ ? beta_.data() : nullptr,
                1e-5F,
                y_.data(),
                mean_.data(),
                rstd_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t r = 0; r < rows_; ++r) {
      std::vector<double> h;
      double mean = 0, squares = 0;
      for (std::size_t i = r * width_; i < (r + 1) * width_; ++i) {
        h.push_back(static_cast<float>(bf16(static_cast<float>(x_.at(i) + residual_.at(i)))));
        all.push_back({sum_.at(i), h.back(), 1e-9});
        mean += h.back() / static_cast<double>(width_);
      }
      if (!layer_) mean = 0;
      for (const double value : h) squares += std::pow(value - mean, 2) / static_cast<double>(width_);
      const double rstd = 1 / std::sqrt(squares + 1e-5);
      if (layer_) all.push_back({mean_.at(r), mean, accepted_f32(mean)});
      all.push_back({rstd_.at(r), rstd, accepted_f32(rstd)});
      for (std::size_t c = 0; c < width_; ++c) {
        const double y = (h[c] - mean) * rstd * gamma_.at(c) + (layer_ ? beta_.at(c) : 0.0);
        all.push_back({y_.at(r * width_ + c), y, accepted_bf16(y)});
      }
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  std::size_t rows_, width_;
  bool layer_;
  Array<bf16> x_, residual_, sum_, y_, gamma_, beta_;
  Array<float> mean_, rstd_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::norm_forward
