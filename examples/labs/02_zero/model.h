// The model of lab 2: a chain of linear layers with tanh, and the squared error. It computes; whose memory the weights
// and gradients are in is the learner's affair. Activations are kept apart, and not counted as anybody's memory.
//
//   for (int layer = 0; layer < model.layers(); ++layer) model.forward(layer, weights);
//   for (int layer = model.layers() - 1; layer >= 0; --layer) model.backward(layer, weights, gradient);
//
// Read next: examples/labs/02_zero/lab.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "examples/labs/harness/cluster.h"

namespace trireme::labs::zero {

/// What is trained on what, the same on all ranks.
struct Task {
  std::vector<std::int64_t> widths;  ///< layer i takes widths[i] numbers, and makes widths[i + 1]
  std::vector<Tensor> initial;       ///< [count] of each layer: its weights before the first step
  std::vector<Tensor> inputs;        ///< of each step [rows, widths.front()]: the whole batch
  std::vector<Tensor> targets;       ///< of each step [rows, widths.back()]

  int layers() const { return static_cast<int>(initial.size()); }
  int steps() const { return static_cast<int>(inputs.size()); }
};

/// The largest use of a rank's memory that was seen, in bytes.
struct MemorySeen {
  std::int64_t weights = 0, gradients = 0, moments = 0;
  std::int64_t others = 0;  ///< of any other category

  /// Adds a look at `pool`: at its peaks, or at what is in use now.
  void look(const MemoryPool& pool, std::int64_t MemoryUse::*what);
};

/// The model on one rank, with this rank's rows of each batch.
class Model {
 public:
  Model(Rank& rank, const Task& task) : rank_(rank), task_(task), pool_(MemoryPool::current()) {}

  int layers() const { return task_.layers(); }
  /// Weights of a layer: its matrix and its bias, one after the other.
  std::int64_t count(int layer) const { return task_.initial.at(at(layer)).count(); }
  /// Writes the layer's weights before the first step, from weight `first` on, into all of `into`; zeros after the
  /// last.
  void initial(int layer, std::int64_t first, Tensor into) const;

  /// Layers in order; layer 0 begins a step. The first count(layer) elements of `weights` are used, whatever its shape.
  void forward(int layer, const Tensor& weights);
  /// Layers in reverse order, after the whole forward. Writes the gradient of this rank's mean loss into the first
  /// count(layer) elements of `gradient`, whatever was there.
  void backward(int layer, const Tensor& weights, Tensor gradient);

  // For the grader.
  using Weights = std::vector<std::vector<float>>;            // of each layer
  const std::vector<Weights>& seen() const { return seen_; }  ///< by forward, in each step
  const MemorySeen& memory() const { return memory_; }        ///< while it computed
  bool done() const { return static_cast<int>(seen_.size()) == task_.steps() && to_go_ == 0; }

 private:
  static constexpr double forward_seconds = 1e-3, backward_seconds = 2e-3;  // of a layer
  using Matrix = std::vector<double>;

  std::size_t width(int i) const { return at(task_.widths[at(i)]); }
  std::vector<float> checked(std::string_view what, int layer, const Tensor& weights) const;
  Matrix own_rows(const Tensor& all);

  Rank& rank_;
  const Task& task_;
  std::shared_ptr<MemoryPool> pool_;
  MemorySeen memory_;
  std::vector<Weights> seen_;
  std::size_t rows_ = 0;
  std::vector<Matrix> activations_;  // [rows, widths[i]]: what layer i takes
  Matrix gradient_;                  // of the loss, by what the next layer of backward has made
  int to_go_ = 0;                    // layers of backward
};

// ---- how it works --------------------------------------------------------------------------------------------------

inline void MemorySeen::look(const MemoryPool& pool, std::int64_t MemoryUse::*what) {
  std::int64_t rest = 0;
  for (int i = 0; i < memory_categories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const std::int64_t bytes = pool.use(category).*what;
    if (category == MemoryCategory::parameters) {
      weights = std::max(weights, bytes);
    } else if (category == MemoryCategory::gradients) {
      gradients = std::max(gradients, bytes);
    } else if (category == MemoryCategory::optimizer) {
      moments = std::max(moments, bytes);
    } else {
      rest += bytes;
    }
  }
  others = std::max(others, rest);
}

inline void Model::initial(int layer, std::int64_t first, Tensor into) const {
  const auto from = task_.initial[at(layer)].span<const float>();
  const auto to = into.span<float>();
  require(first >= 0, "initial", "layer {} from weight {} on; expected 0 or more", layer, first);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = at(first) + i < from.size() ? from[at(first) + i] : 0;
}

inline std::vector<float> Model::checked(std::string_view what, int layer, const Tensor& weights) const {
  require(weights.count() >= count(layer), what, "layer {} on a tensor of {} elements; expected {} or more", layer,
          weights.count(), count(layer));
  const auto all = weights.span<const float>();
  return {all.begin(), all.begin() + count(layer)};
}

/// The rows of the batch that are this rank's.
inline Model::Matrix Model::own_rows(const Tensor& all) {
  const std::int64_t rows = all.size(0) / rank_.size();
  rows_ = at(rows);
  const auto values = all.span<const float>().subspan(at(rank_.rank() * rows * all.size(1)), at(rows * all.size(1)));
  return {values.begin(), values.end()};
}

// y [rows, out] = tanh(x [rows, in] W^T + b), with W [out, in] and b [out] one after the other in `weights`.
inline void Model::forward(int layer, const Tensor& weights) {
  const int expected = to_go_ > 0 ? -1 : static_cast<int>(activations_.empty() ? 0 : activations_.size() - 1);
  require(layer == expected, "forward", "layer {}; expected {}", layer,
          expected < 0 ? fmt::format("backward of layer {}", to_go_ - 1) : fmt::format("layer {}", expected));
  const std::vector<float> w = checked("forward", layer, weights);
  if (layer == 0) {
    require(static_cast<int>(seen_.size()) < task_.steps(), "forward", "another step; expected {}", task_.steps());
    seen_.emplace_back();
    activations_ = {own_rows(task_.inputs[seen_.size() - 1])};
  }
  rank_.compute(forward_seconds, fmt::format("forward of layer {}", layer));
  memory_.look(*pool_, &MemoryUse::live);
  const std::size_t in = width(layer), out = width(layer + 1);
  const Matrix& x = activations_.back();
  Matrix y(rows_ * out);
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = w[out * in + o];
      for (std::size_t i = 0; i < in; ++i) sum += x[row * in + i] * w[o * in + i];
      y[row * out + o] = std::tanh(sum);
    }
  }
  activations_.push_back(std::move(y));
  seen_.back().push_back(w);
  if (layer + 1 == layers()) to_go_ = layers();
}

inline void Model::backward(int layer, const Tensor& weights, Tensor gradient) {
  require(to_go_ > 0 && layer == to_go_ - 1, "backward", "layer {}; expected {}", layer,
          to_go_ > 0 ? fmt::format("layer {}", to_go_ - 1) : "the forward of all layers first");
  const std::vector<float> w = checked("backward", layer, weights);
  require(std::memcmp(w.data(), seen_.back()[at(layer)].data(), w.size() * sizeof(float)) == 0, "backward",
          "layer {}: the weights are not those of its forward", layer);
  checked("backward", layer, gradient);
  rank_.compute(backward_seconds, fmt::format("backward of layer {}", layer));
  memory_.look(*pool_, &MemoryUse::live);
  const std::size_t in = width(layer), out = width(layer + 1);
  const Matrix &x = activations_[at(layer)], &y = activations_[at(layer) + 1];
  if (layer + 1 == layers()) {  // of the loss: half the mean over rows of the squared error
    gradient_ = y;
    const Matrix targets = own_rows(task_.targets[seen_.size() - 1]);
    for (std::size_t i = 0; i < y.size(); ++i) gradient_[i] = (y[i] - targets[i]) / static_cast<double>(rows_);
  }
  Matrix to_input(rows_ * in), to_weights(w.size());
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t o = 0; o < out; ++o) {
      const double value = y[row * out + o], to_sum = gradient_[row * out + o] * (1 - value * value);
      for (std::size_t i = 0; i < in; ++i) {
        to_weights[o * in + i] += to_sum * x[row * in + i];
        to_input[row * in + i] += to_sum * w[o * in + i];
      }
      to_weights[out * in + o] += to_sum;
    }
  }
  std::ranges::transform(to_weights, gradient.span<float>().begin(), [](double g) { return static_cast<float>(g); });
  gradient_ = std::move(to_input);
  if (--to_go_ == 0) activations_.clear();
}

}  // namespace trireme::labs::zero
