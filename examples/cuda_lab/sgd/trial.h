// The tensors of a model with gradients and velocities, and a step of descent in f64.
// Read next: examples/cuda_lab/sgd/ladder.h.
#pragma once

#include "examples/cuda_lab/sgd/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::sgd {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// Elements of each tensor.
  explicit Attempt(const std::vector<std::int64_t>& counts) : TrialOf(lab::sgd::levels()), counts_(counts) {
    for (const std::int64_t count : counts) {
      all_.push_back(std::make_unique<One>(size_of(count)));
      fill(all_.back()->gradient, random_);
    }
    Attempt::reset();
  }
  void reset() override {
    tensors_.clear();
    for (std::size_t t = 0; t < all_.size(); ++t) {
      One& one = *all_[t];
      fill(one.weight, [this](std::size_t i) { return weight(i); });
      fill(one.velocity, [this](std::size_t i) { return velocity(i); });
      spoil(one.low);
      tensors_.push_back({one.gradient.data(), one.weight.data(), one.velocity.data(), one.low.data(), counts_[t],
                          t % 2 == 0 ? 0.125F : 0.0F});
    }
    problem_ = {tensors_, kSettings};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t t = 0; t < all_.size(); ++t) {
      const One& one = *all_[t];
      for (std::size_t i = 0; i < one.weight.size(); ++i) {
        const double g = 0.25 * one.gradient.at(i) + static_cast<double>(tensors_[t].decay) * weight(i);
        const double v = 0.875 * velocity(i) + g, w = weight(i) - 0.0625 * v;
        all.push_back({one.velocity.at(i), v, 1e-6});
        all.push_back({one.weight.at(i), w, 1e-6});
        all.push_back({one.low.at(i), static_cast<float>(bf16(static_cast<float>(one.weight.at(i)))), 1e-9});
      }
    }
    return all;
  }

 private:
  struct One {
    Array<float> gradient, weight, velocity;
    Array<bf16> low;
    explicit One(std::size_t count) : gradient(count), weight(count), velocity(count), low(count) {}
  };
  static constexpr SgdSettings kSettings = {0.0625F, 0.875F, 0.25F};  // exact in f32

  const Problem& problem() const override { return problem_; }
  float weight(std::size_t i) const { return random_(i + 1); }
  float velocity(std::size_t i) const { return random_(i + 2); }

  std::vector<std::int64_t> counts_;
  std::vector<std::unique_ptr<One>> all_;
  std::vector<SgdTensor<bf16>> tensors_;  // in host memory, with pointers into device memory
  Uniform random_{1};
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::sgd
