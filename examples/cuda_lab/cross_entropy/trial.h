// Rows of logits with their targets, and losses and gradients in f64. Some rows do not count, and some columns are
// padding.
// Read next: examples/cuda_lab/cross_entropy/ladder.h.
#pragma once

#include "examples/cuda_lab/cross_entropy/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::cross_entropy {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {rows, columns, columns that are tokens}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::cross_entropy::levels()),
        rows_(size_of(sizes[0])),
        columns_(size_of(sizes[1])),
        valid_(size_of(sizes[2])),
        logits_(rows_ * columns_),
        targets_(rows_),
        statistics_(4 * rows_),
        losses_(rows_) {
    fill(targets_, [this](std::size_t r) { return target(r); });
    Attempt::reset();
  }
  void reset() override {
    fill(logits_, [this](std::size_t i) { return logit(i); });
    spoil(statistics_);
    spoil(losses_);
    float* const statistics = statistics_.data();
    problem_ = {.rows = {.rows = static_cast<int>(rows_),
                         .columns = static_cast<int>(columns_),
                         .valid = static_cast<int>(valid_),
                         .first = 0,
                         .vocabulary = static_cast<std::int64_t>(valid_),
                         .smoothing = 0,
                         .logits = logits_.data(),
                         .targets = targets_.data(),
                         .maximum = statistics,
                         .sum_exp = statistics + rows_,
                         .target_logit = statistics + 2 * rows_,
                         .logit_sum = statistics + 3 * rows_},
                .scale = 1.0 / static_cast<double>(rows_),
                .losses = losses_.data(),
                .gradients = logits_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    for (std::size_t r = 0; r < rows_; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < valid_; ++c) sum += std::exp(before(r, c));
      const int token = target(r);
      const double loss = token < 0 ? 0 : std::log(sum) - before(r, size_of(token));
      all.push_back({losses_.value(r), loss, accepted_f32(loss)});
      for (std::size_t c = 0; c < columns_; ++c) {
        double gradient = 0;
        if (token >= 0 && c < valid_)
          gradient = problem_.scale * (std::exp(before(r, c)) / sum - (size_of(token) == c ? 1 : 0));
        all.push_back({logits_.at(r * columns_ + c), gradient, std::abs(gradient) / 200 + 1e-6 * problem_.scale});
      }
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }
  int target(std::size_t r) const { return r % 4 == 3 ? -1 : static_cast<int>(r * 131 % valid_); }
  bf16 logit(std::size_t i) const { return bf16(8 * random_(i)); }
  double before(std::size_t r, std::size_t c) const { return static_cast<float>(logit(r * columns_ + c)); }

  std::size_t rows_, columns_, valid_;
  Array<bf16> logits_;
  Array<std::int32_t> targets_;
  Array<float> statistics_;
  Array<double> losses_;
  Uniform random_{1};
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::cross_entropy
