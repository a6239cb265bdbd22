// The tensors of a model, with gradients that need clipping, and a step of AdamW in f64.
// Read next: examples/cuda_lab/adamw/ladder.h.
#pragma once

#include "examples/cuda_lab/adamw/ladder.h"
#include "examples/cuda_lab/tensor_trial.h"

namespace trireme::cuda::lab::adamw {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// Elements of each tensor.
  explicit Attempt(const std::vector<std::int64_t>& counts)
      : TrialOf(lab::adamw::levels()),
        tensors_(counts),
        norm_squared_(1),
        scaled_(size_of(*std::max_element(counts.begin(), counts.end()))) {
    for (std::size_t t = 0; t < counts.size(); ++t) fill(tensors_.all()[t]->gradient, random_);
    norm_squared_.set(0, 64.0);  // any: a norm of 8, to be clipped to 2
    Attempt::reset();
  }
  void reset() override {
    for (const auto& tensor : tensors_.all()) {
      fill(tensor->weight, [this](std::size_t i) { return weight(i); });
      fill(tensor->m, [this](std::size_t i) { return moment(i); });
      fill(tensor->v, [this](std::size_t i) { return square(i); });
      spoil(tensor->low);
    }
    spoil(scaled_);
    problem_ = {tensors_.on_device(), kSettings, 2, norm_squared_.data(), scaled_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t t = 0; t < tensors_.all().size(); ++t) {
      const auto& tensor = *tensors_.all()[t];
      const double decay = problem_.tensors[t].decay;
      for (std::size_t i = 0; i < tensor.weight.size(); ++i) {
        const double g = 0.25 * tensor.gradient.at(i);
        const double m = kBeta1 * moment(i) + (1 - kBeta1) * g, v = kBeta2 * square(i) + (1 - kBeta2) * g * g;
        const double step = kRate * (m * kInverse1 / (std::sqrt(v * kInverse2) + kEps) + decay * weight(i));
        const double w = weight(i) - step;
        all.push_back({tensor.m.at(i), m, 1e-6});
        all.push_back({tensor.v.at(i), v, 1e-6});
        all.push_back({tensor.weight.at(i), w, 1e-7 + 1e-5 * std::abs(step)});
        all.push_back({tensor.low.at(i), static_cast<float>(bf16(static_cast<float>(tensor.weight.at(i)))), 1e-9});
      }
    }
    return all;
  }

 private:
  static constexpr double kRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kInverse1 = 2, kInverse2 = 3;
  static constexpr AdamWSettings kSettings = {1e-3F, 0.9F, 0.95F, 1e-8F, 2, 3, 1};

  float weight(std::size_t i) const { return random_(i + 1); }
  float moment(std::size_t i) const { return 0.1F * random_(i + 2); }
  float square(std::size_t i) const { return 0.02F + 0.01F * random_(i + 3); }

  Tensors<Array> tensors_;
  Array<double> norm_squared_;
  Array<float> scaled_;
  Uniform random_{1};
};

}  // namespace trireme::cuda::lab::adamw
