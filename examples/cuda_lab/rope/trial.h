// Heads to be turned, at positions far apart, and the same in f64.
// Read next: examples/cuda_lab/rope/ladder.h.
#pragma once

#include "examples/cuda_lab/rope/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::rope {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {batch, tokens, heads, head_dim}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::rope::levels()),
        x_(size_of(sizes[0] * sizes[1], sizes[2] * sizes[3])),
        y_(x_.size()),
        positions_(size_of(sizes[1])),
        table_(size_of(sizes[1], sizes[3])),
        sizes_(sizes) {
    fill(x_, Uniform(1));
    fill(positions_, [](std::size_t t) { return t * t * 5003 % 100000; });
    Attempt::reset();
  }
  void reset() override {
    spoil(y_);
    spoil(table_);
    problem_ = {sizes_[0], sizes_[1], sizes_[2],         sizes_[3],     kBase,
                false,     x_.data(), positions_.data(), table_.data(), y_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<Checked> all;
    const std::size_t half = size_of(sizes_[3]) / 2, heads = size_of(sizes_[2]), tokens = positions_.size();
    for (std::size_t low = 0; low < x_.size(); low += 2 * half)
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t token = low / (2 * half) / heads % tokens;
        const double angle =
            positions_.at(token) * std::pow(kBase, -static_cast<double>(i) / static_cast<double>(half));
        const double a = x_.at(low + i), b = x_.at(low + half + i), c = std::cos(angle), s = std::sin(angle);
        all.push_back({y_.at(low + i), a * c - b * s, accepted_bf16(a * c - b * s)});
        all.push_back({y_.at(low + half + i), b * c + a * s, accepted_bf16(b * c + a * s)});
      }
    return all;
  }

 private:
  static constexpr double kBase = 10000;

  const Problem& problem() const override { return problem_; }

  Array<bf16> x_, y_;
  Array<std::int32_t> positions_;
  Array<float> table_;
  std::vector<std::int64_t> sizes_;
  Problem problem_ = {};
};

}  // namespace trireme::cuda::lab::rope
