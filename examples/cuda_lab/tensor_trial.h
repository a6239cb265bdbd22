// The tensors of a model, for the trials of the gradient's norm and of AdamW.
// Read next: examples/cuda_lab/gradient_norm/trial.h.
#pragma once

#include <memory>

#include "cuda/kernels/optimizer.h"
#include "examples/cuda_lab/trial.h"

namespace trireme::cuda::lab {

/// Elements of GPT-2 124M's tensors, with the vocabulary padded to 50,304.
inline std::vector<std::int64_t> gpt2_tensors() {
  const std::int64_t width = 768;
  std::vector<std::int64_t> counts = {50304 * width, 1024 * width};
  for (int layer = 0; layer < 12; ++layer)
    for (const std::int64_t count : {width, width, 3 * width * width, 3 * width, width * width, width, width, width,
                                     4 * width * width, 4 * width, 4 * width * width, width})
      counts.push_back(count);
  counts.insert(counts.end(), {width, width});
  return counts;
}

template <template <class> class Array>
class Tensors {
 public:
  struct One {
    Array<float> weight, m, v;
    Array<bf16> gradient, low;
    explicit One(std::size_t count) : weight(count), m(count), v(count), gradient(count), low(count) {}
  };

  explicit Tensors(const std::vector<std::int64_t>& counts) : counts_(counts) {
    for (const std::int64_t count : counts) all_.push_back(std::make_unique<One>(size_of(count)));
  }

  /// Call after the tensors were set.
  std::span<const AdamWTensor<bf16>> on_device() {
    tensors_.clear();
    for (std::size_t t = 0; t < all_.size(); ++t) {
      One& one = *all_[t];
      tensors_.push_back({one.weight.data(), one.m.data(), one.v.data(), one.gradient.data(), one.low.data(),
                          counts_[t], t % 2 == 0 ? 0.1F : 0.0F});
    }
    return tensors_;
  }
  std::span<const std::unique_ptr<One>> all() const { return all_; }

 private:
  std::vector<std::int64_t> counts_;
  std::vector<std::unique_ptr<One>> all_;
  std::vector<AdamWTensor<bf16>> tensors_;  // in host memory, with pointers into device memory
};

}  // namespace trireme::cuda::lab
