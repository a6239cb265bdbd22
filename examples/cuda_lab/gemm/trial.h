// Two matrices, and their product in f64.
// Read next: examples/cuda_lab/gemm/ladder.h.
#pragma once

#include "examples/cuda_lab/gemm/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::gemm {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {m, n, k}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::gemm::levels()),
        m_(size_of(sizes[0])),
        n_(size_of(sizes[1])),
        k_(size_of(sizes[2])),
        a_(m_ * k_),
        b_(k_ * n_),
        c_(m_ * n_) {
    fill(a_, Uniform(1));
    fill(b_, Uniform(2));
    Attempt::reset();
  }
  void reset() override {
    spoil(c_);
    problem_ = {static_cast<int>(m_), static_cast<int>(n_), static_cast<int>(k_), a_.data(), b_.data(), c_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t i = 0; i < m_; ++i)
      for (std::size_t j = 0; j < n_; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k_; ++l) sum += a_.at(i * k_ + l) * b_.at(l * n_ + j);
        all.push_back({c_.at(i * n_ + j), sum, 1e-5});  // f32 sums of products that are exact in f32
      }
    return all;
  }

 private:
  std::size_t m_, n_, k_;
  Array<bf16> a_, b_;
  Array<float> c_;
};

}  // namespace trireme::cuda::lab::gemm
