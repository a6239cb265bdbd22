// Heads with their forward pass in f64, and the gradients in f64.
// Read next: examples/cuda_lab/attention_backward/ladder.h.
#pragma once

#include "examples/cuda_lab/attention_backward/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::attention_backward {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {heads, tokens, 1 for causal}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::attention_backward::levels()),
        heads_(size_of(sizes[0])),
        tokens_(size_of(sizes[1])),
        causal_(sizes[2] != 0) {
    std::uint64_t seed = 1;
    for (auto* input : {&q_, &k_, &v_, &dout_}) fill(*input, Uniform(seed++));
    fill_forward();
    Attempt::reset();
  }
  void reset() override {
    for (auto* result : {&dq_, &dk_, &dv_}) spoil(*result);
    for (auto* scratch : {&delta_, &probabilities_, &ds_}) spoil(*scratch);
    problem_ = {static_cast<int>(heads_),
                static_cast<int>(tokens_),
                causal_,
                static_cast<float>(kScale),
                q_.data(),
                k_.data(),
                v_.data(),
                out_.data(),
                lse_.data(),
                dout_.data(),
                dq_.data(),
                dk_.data(),
                dv_.data(),
                delta_.data(),
                probabilities_.data(),
                ds_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<double> dq(q_.size()), dk(dq.size()), dv(dq.size());
    for (std::size_t query = 0; query < heads_ * tokens_; ++query) {
      const Row row(*this, query);
      double mean = 0;  // of dp: the gradient through the softmax's denominator
      std::vector<double> dp;
      for (std::size_t i = 0; i < row.p.size(); ++i)
        mean += row.p[i] * dp.emplace_back(product(in_.dout, query, in_.v, row.first + i));
      for (std::size_t i = 0; i < row.p.size(); ++i) {
        const std::size_t key = row.first + i;
        const double ds = row.p[i] * (dp[i] - mean) * kScale;
        for (std::size_t d = 0; d < kDim; ++d) {
          dq[query * kDim + d] += ds * in_.k[key * kDim + d];
          dk[key * kDim + d] += ds * in_.q[query * kDim + d];
          dv[key * kDim + d] += row.p[i] * in_.dout[query * kDim + d];
        }
      }
    }
    std::vector<Checked> all;
    check(dq_, dq, all);
    check(dk_, dk, all);
    check(dv_, dv, all);
    return all;
  }

 private:
  static constexpr std::size_t kDim = kHeadDim, kMostChecked = 256;
  static constexpr double kScale = 0.125;
  const Problem& problem() const override { return problem_; }

  using Values = std::vector<double>;
  static Values values_of(const Array<bf16>& array) {
    Values values;
    for (std::size_t i = 0; i < array.size(); ++i) values.push_back(array.at(i));
    return values;
  }
  static double product(const Values& a, std::size_t i, const Values& b, std::size_t j) {
    double sum = 0;
    for (std::size_t d = 0; d < kDim; ++d) sum += a[i * kDim + d] * b[j * kDim + d];
    return sum;
  }
  /// A query's results for the keys it sees, which begin at `first`.
  struct Row {
    std::size_t first;
    std::vector<double> p;
    double sum = 0;
    Row(const Attempt& x, std::size_t query) : first(query / x.tokens_ * x.tokens_) {
      const std::size_t end = x.causal_ ? query + 1 : first + x.tokens_;
      for (std::size_t key = first; key < end; ++key)
        sum += p.emplace_back(std::exp(product(x.in_.q, query, x.in_.k, key) * kScale));
      for (double& weight : p) weight /= sum;
    }
  };
  /// Large problems are timed but not checked, so any out and lse will do.
  void fill_forward() {
    if (tokens_ > kMostChecked) {
      fill(out_, Uniform(5));
      return fill(lse_, [this](std::size_t) { return std::log(static_cast<double>(tokens_)); });
    }
    in_ = {values_of(q_), values_of(k_), values_of(v_), values_of(dout_)};
    for (std::size_t query = 0; query < lse_.size(); ++query) {
      const Row row(*this, query);
      lse_.set(query, static_cast<float>(std::log(row.sum)));
      for (std::size_t d = 0; d < kDim; ++d) {
        double out = 0;
        for (std::size_t i = 0; i < row.p.size(); ++i) out += row.p[i] * in_.v[(row.first + i) * kDim + d];
        out_.set(query * kDim + d, bf16(static_cast<float>(out)));
      }
    }
  }
  /// p, ds and the result are each rounded to bf16 once, as out was; the error of sums follows the largest term.
  static void check(const Array<bf16>& got, const std::vector<double>& expected, std::vector<Checked>& all) {
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < expected.size(); ++i) all.push_back({got.at(i), expected[i], (1 + largest) / 128});
  }

  std::size_t heads_, tokens_;
  bool causal_;
  std::size_t values_ = heads_ * tokens_ * kDim, scores_ = heads_ * tokens_ * tokens_;
  Array<bf16> q_{values_}, k_{values_}, v_{values_}, out_{values_}, dout_{values_};
  Array<bf16> dq_{values_}, dk_{values_}, dv_{values_};
  Array<float> lse_{heads_ * tokens_}, delta_{heads_ * tokens_}, probabilities_{scores_}, ds_{scores_};
  struct {
    Values q, k, v, dout;
  } in_;  ///< inputs of small problems, for checking
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::attention_backward
