// What the checks of lab 5 share: attention on one rank, sizes, and which part of a tensor a rank has.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/engine.h"
#include "examples/labs/05_sequence/lab.h"

namespace trireme::labs::sequence {

/// Attention on one rank, in f64, and its gradients if there is a dout.
struct OneRank {
  Tensor out;  // [T, H, D]
  Qkv gradients = {};

  explicit OneRank(const Qkv& x, bool causal, const Tensor& dout = {}) {
    const auto leaf = [](const Tensor& from) {
      Tensor wide =
          clone(cast(view::reshape(contiguous(from), {1, from.size(0), from.size(1), from.size(2)}), DType::f64));
      require_grad(wide);
      return wide;
    };
    const Tensor q = leaf(x.q), k = leaf(x.k), v = leaf(x.v);  // [1, T, H, D]
    const Tensor attended = select(attention(q, k, v, causal), 0, 0);
    out = attended.detach();
    if (!dout.defined()) return;
    backward(attended, cast(dout, DType::f64));
    gradients = {view::select(grad(q), 0, 0), view::select(grad(k), 0, 0), view::select(grad(v), 0, 0)};
  }
};

/// Scores of one head.
inline double scores_of(std::int64_t queries, std::int64_t keys, bool causal) {
  const auto all = static_cast<double>(queries * keys);
  return causal ? (all + static_cast<double>(queries)) / 2 : all;
}

struct Sizes {
  int ranks;
  std::int64_t length, heads, width;

  std::int64_t local() const { return length / ranks; }
  std::int64_t count() const { return length * heads * width; }
  /// Bytes of f32 that a rank holds of a tensor of q's shape.
  std::int64_t bytes() const { return count() / ranks * 4; }
  /// Seconds of computing for each rank, if all have as much.
  double fair_share() const {
    return static_cast<double>(heads) * scores_of(length, length, true) / ranks * seconds_per_score;
  }
};

inline Sizes ring_sizes(Grading& grading, int ranks) {
  return {ranks, std::int64_t{2} * ranks * grading.pick(3, 8), grading.pick(1, 3), grading.pick(3, 8)};
}
inline Sizes ulysses_sizes(Grading& grading, int ranks) {
  return {ranks, std::int64_t{ranks} * grading.pick(5, 9), std::int64_t{ranks} * grading.pick(2, 3),
          grading.pick(3, 6)};
}

/// Queries are multiplied by `scale`, and so are the scores.
inline Qkv random_qkv(Grading& grading, const Sizes& s, double scale = 1) {
  const Shape shape = {s.length, s.heads, s.width};
  return {grading.random(shape) * scale, grading.random(shape), grading.random(shape)};
}

template <class Function>
inline Qkv each(const Qkv& x, const Function& function) {
  return {function(x.q), function(x.k), function(x.v)};
}

}  // namespace trireme::labs::sequence
