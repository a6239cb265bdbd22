// Attention over two sets of keys, either of them empty for some queries, and over both in f64.
// Read next: examples/cuda_lab/attention_merge/ladder.h.
#pragma once

#include "examples/cuda_lab/attention_merge/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::attention_merge {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {batch, tokens, heads, width}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::attention_merge::levels()),
        sizes_(sizes),
        rows_(size_of(sizes[0] * sizes[1], sizes[2])),
        width_(size_of(sizes[3])),
        part_(rows_ * width_),
        out_(rows_ * width_),
        part_lse_(rows_),
        lse_(rows_),
        kept_(rows_),
        joined_(rows_) {
    fill(part_, Uniform(1));
    fill(part_lse_, [this](std::size_t i) { return i % 3 == 1 ? -INFINITY : 10 * part_lse_values_(i); });
    Attempt::reset();
  }
  void reset() override {
    fill(out_, before_);
    fill(lse_, [this](std::size_t i) { return lse_before(i); });
    spoil(kept_);
    spoil(joined_);
    problem_ = {sizes_[0],    sizes_[1],        sizes_[2],   static_cast<int>(width_),
                part_.data(), part_lse_.data(), out_.data(), lse_.data(),
                kept_.data(), joined_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    const std::size_t heads = size_of(sizes_[2]), tokens = size_of(sizes_[1]);
    for (std::size_t row = 0; row < rows_; ++row) {
      const std::size_t place = (row / heads / tokens * heads + row % heads) * tokens + row / heads % tokens;
      const double a = std::exp(double{lse_before(place)}), b = std::exp(part_lse_.at(place)), sum = a + b;
      all.push_back({std::exp(lse_.at(place)), sum, accepted_f32(sum)});  // as e^lse: lse may be -infinity
      for (std::size_t i = row * width_; i < (row + 1) * width_; ++i) {
        const double before = double{before_(i)};
        const double joined = sum == 0 ? before : (a * before + b * part_.at(i)) / sum;
        all.push_back({out_.at(i), joined, accepted_f32(joined)});
      }
    }
    return all;
  }

 private:
  const Problem& problem() const override { return problem_; }
  float lse_before(std::size_t i) const { return i % 5 == 1 ? -INFINITY : 10 * lse_values_(i); }

  std::vector<std::int64_t> sizes_;
  std::size_t rows_, width_;
  Uniform before_{2}, lse_values_{3}, part_lse_values_{4};
  Array<bf16> part_;
  Array<float> out_, part_lse_, lse_, kept_, joined_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::attention_merge
