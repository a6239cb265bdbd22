// Queries, keys and values of some heads, and their attention in f64.
// Read next: examples/cuda_lab/attention/ladder.h.
#pragma once

#include "examples/cuda_lab/attention/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::attention {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {heads, tokens, 1 if causal}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::attention::levels()),
        heads_(size_of(sizes[0])),
        tokens_(size_of(sizes[1])),
        causal_(sizes[2] != 0),
        q_(heads_ * tokens_ * kDim),
        k_(q_.size()),
        v_(q_.size()),
        out_(q_.size()),
        scores_(heads_ * tokens_ * tokens_) {
    const Uniform random(1);
    fill(q_, [&](std::size_t i) { return 2 * random(i); });
    fill(k_, [&](std::size_t i) { return 2 * random(i + 1); });
    fill(v_, Uniform(2));
    Attempt::reset();
  }
  void reset() override {
    spoil(out_);
    spoil(scores_);
    problem_ = {static_cast<int>(heads_),
                static_cast<int>(tokens_),
                causal_,
                static_cast<float>(kScale),
                q_.data(),
                k_.data(),
                v_.data(),
                out_.data(),
                scores_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t query = 0; query < heads_ * tokens_; ++query) {
      const std::size_t first = query / tokens_ * tokens_, end = causal_ ? query + 1 : first + tokens_;
      std::vector<double> expected(kDim);
      double sum = 0;
      for (std::size_t key = first; key < end; ++key) {
        double score = 0;
        for (std::size_t d = 0; d < kDim; ++d) score += q_.at(query * kDim + d) * k_.at(key * kDim + d);
        const double weight = std::exp(score * kScale);
        sum += weight;
        for (std::size_t d = 0; d < kDim; ++d) expected[d] += weight * v_.at(key * kDim + d);
      }
      // Values below one: half a step of bf16 for the result, and as much again for weights in 16 bits.
      for (std::size_t d = 0; d < kDim; ++d) all.push_back({out_.at(query * kDim + d), expected[d] / sum, 1.0 / 128});
    }
    return all;
  }

 private:
  static constexpr std::size_t kDim = kHeadDim;
  static constexpr double kScale = 0.125;

  std::size_t heads_, tokens_;
  bool causal_;
  Array<bf16> q_, k_, v_, out_;
  Array<float> scores_;
};

}  // namespace trireme::cuda::lab::attention
