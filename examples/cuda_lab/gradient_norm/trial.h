// Gradients of tensors of given sizes, and the sum of their squares in f64.
// Read next: examples/cuda_lab/gradient_norm/ladder.h.
#pragma once

#include "examples/cuda_lab/gradient_norm/ladder.h"
#include "examples/cuda_lab/tensor_trial.h"

namespace trireme::cuda::lab::gradient_norm {

template <template <class> class Array>
class Attempt : public TrialOf<Problem> {
 public:
  /// Elements of each tensor.
  explicit Attempt(const std::vector<std::int64_t>& counts)
      : TrialOf(lab::gradient_norm::levels()),
        tensors_(counts),
        partials_(tiles(counts)),
        shipped_partials_(tiles(counts)),
        result_(1) {
    // Multiples of 1/16: f32 holds the sum of the squares of a few of them exactly, in any order.
    for (std::size_t t = 0; t < counts.size(); ++t) {
      const Uniform random(t);
      fill(tensors_.all()[t]->gradient, [&](std::size_t i) { return std::round(16 * random(i)) / 16; });
    }
    Attempt::reset();
  }
  void reset() override {
    spoil(partials_);
    spoil(shipped_partials_);
    spoil(result_);
    problem_ = {tensors_.on_device(), partials_.data(), shipped_partials_.data(), result_.data()};
  }
  std::vector<Checked> results() override {
    double sum = 0;
    for (const auto& tensor : tensors_.all())
      for (std::size_t i = 0; i < tensor->gradient.size(); ++i) sum += std::pow(tensor->gradient.at(i), 2);
    return {{result_.value(0), sum, 1e-9}};
  }

 private:
  static std::size_t tiles(const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += tiles_of(count);
    return size_of(sum);
  }

  Tensors<Array> tensors_;
  Array<float> partials_;
  Array<double> shipped_partials_, result_;
};

}  // namespace trireme::cuda::lab::gradient_norm
