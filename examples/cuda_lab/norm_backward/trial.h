// Normalised rows with the gradients that come back to them, and the gradients of h, gamma and beta in f64.
// Read next: examples/cuda_lab/norm_backward/ladder.h.
#pragma once

#include "examples/cuda_lab/norm_backward/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::norm_backward {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, width, 1 for LayerNorm or 0 for RMSNorm}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::norm_backward::levels()),
        rows_(size_of(sizes[0])),
        width_(size_of(sizes[1])),
        layer_(sizes[2] != 0),
        h_(rows_ * width_),
        dy_(rows_ * width_),
        dsum_(rows_ * width_),
        dx_(rows_ * width_),
        gamma_(width_),
        mean_(rows_),
        rstd_(rows_),
        dgamma_(width_),
        dbeta_(width_),
        partials_(2 * size_of(norm_backward_blocks(static_cast<int>(rows_))) * width_) {
    fill(h_, Uniform(1));
    fill(dy_, Uniform(2));
    fill(dsum_, Uniform(3));
    fill(gamma_, Uniform(4));
    // The formulas hold for any mean and rstd; computing the real ones would take long at full size.
    fill(mean_, [](std::size_t r) { return 0.01F * static_cast<float>(r % 7); });
    fill(rstd_, [](std::size_t r) { return 1.7F + 0.01F * static_cast<float>(r % 5); });
    Attempt::reset();
  }
  void reset() override {
    spoil(dx_);
    spoil(dgamma_);
    spoil(dbeta_);
    spoil(partials_);
    problem_ = {layer_ ? Norm::layer : Norm::rms,
                static_cast<int>(rows_),
                static_cast<int>(width_),
                h_.data(),
                gamma_.data(),
                mean_.data(),
                rstd_.data(),
                dy_.data(),
                dsum_.data(),
                dx_.data(),
                dgamma_.data(),
                layer_ ? dbeta_.data() : nullptr,
                partials_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    std::vector<double> dgamma(width_), dbeta(width_);
    const auto width = static_cast<double>(width_);
    for (std::size_t r = 0; r < rows_; ++r) {
      std::vector<double> g, n;
      double mean_g = 0, mean_gn = 0;
      for (std::size_t c = 0; c < width_; ++c) {
        const std::size_t i = r * width_ + c;
        n.push_back((h_.at(i) - (layer_ ? mean_.at(r) : 0.0)) * rstd_.at(r));
        g.push_back(dy_.at(i) * gamma_.at(c));
        mean_g += layer_ ? g[c] / width : 0.0;
        mean_gn += g[c] * n[c] / width;
        dgamma[c] += dy_.at(i) * n[c];
        dbeta[c] += dy_.at(i);
      }
      for (std::size_t c = 0; c < width_; ++c) {
        const double dx = rstd_.at(r) * (g[c] - mean_g - n[c] * mean_gn) + dsum_.at(r * width_ + c);
        all.push_back({dx_.at(r * width_ + c), dx, accepted_bf16(dx)});
      }
    }
    // Sums of values of both signs: the f32 error is relative to the terms, not to their sum.
    const double accepted = 1e-6 * (1 + static_cast<double>(rows_));
    for (std::size_t c = 0; c < width_; ++c) {
      all.push_back({dgamma_.at(c), dgamma[c], accepted});
      if (layer_) all.push_back({dbeta_.at(c), dbeta[c], accepted});
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }

  std::size_t rows_, width_;
  bool layer_;
  Array<bf16> h_, dy_, dsum_, dx_, gamma_;
  Array<float> mean_, rstd_, dgamma_, dbeta_, partials_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::norm_backward
