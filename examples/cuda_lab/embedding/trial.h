// Gradients of tokens, few of which make up most of the text, and the sum for each row of the vocabulary in f64.
// Read next: examples/cuda_lab/embedding/ladder.h.
#pragma once

#include "examples/cuda_lab/embedding/ladder.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab::embedding {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// {tokens, vocabulary, width}
  explicit Attempt(const std::vector<std::int64_t>& sizes)
      : TrialOf(lab::embedding::levels()),
        tokens_(size_of(sizes[0])),
        vocabulary_(size_of(sizes[1])),
        width_(size_of(sizes[2])),
        dy_(tokens_ * width_),
        ids_(tokens_),
        dweight_(vocabulary_ * width_),
        keys_(tokens_) {
    fill(dy_, random_);
    fill(ids_, [this](std::size_t n) { return id(n); });
    Attempt::reset();
  }
  void reset() override {
    fill(dweight_, [this](std::size_t i) { return random_(i + 5); });
    fill(keys_, [](std::size_t i) { return i; });
    problem_ = {dy_.data(),
                ids_.data(),
                static_cast<int>(tokens_),
                static_cast<int>(vocabulary_),
                static_cast<int>(width_),
                dweight_.data(),
                keys_.data()};
  }
  std::vector<Checked> results() override {
    std::vector<double> expected(dweight_.size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = random_(i + 5);
    for (std::size_t n = 0; n < tokens_; ++n) {
      if (id(n) < 0 || size_of(id(n)) >= vocabulary_) continue;
      for (std::size_t c = 0; c < width_; ++c) expected[size_of(id(n)) * width_ + c] += dy_.at(n * width_ + c);
    }
    std::vector<Checked> all;
    const double accepted = 1e-6 * (1 + static_cast<double>(tokens_) / 10);
    for (std::size_t i = 0; i < expected.size(); ++i) all.push_back({dweight_.at(i), expected[i], accepted});
    return all;
  }

 private:
  /// The fourth power of a uniform value: a tenth of the tokens below vocabulary / 10,000, as in a text. Some are none.
  std::int32_t id(std::size_t n) const {
    if (n % 11 == 10) return n % 2 == 0 ? -1 : static_cast<std::int32_t>(vocabulary_);
    return static_cast<std::int32_t>(std::pow(std::abs(random_(n + 7)), 4) * static_cast<double>(vocabulary_));
  }

  std::size_t tokens_, vocabulary_, width_;
  Array<bf16> dy_;
  Array<std::int32_t> ids_;
  Array<float> dweight_;
  Array<std::uint64_t> keys_;
  Uniform random_{1};
};

}  // namespace trireme::cuda::lab::embedding
