// Lab 5, one sequence on several ranks: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "autograd/ops.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::sequence {

/// Queries, keys and values, or their gradients: each [T, H, D] for T tokens, H heads, D features of a head.
struct Qkv {
  Tensor q, k, v;
};

/// What attention has summed up over some of the keys. Over all keys, out / sum is attention's output.
struct Partial {
  Tensor out;  ///< [T, H, D]: of each query, the sum over the keys of e^(score - max) times the key's value
  Tensor max;  ///< [T, H, 1]: its largest score
  Tensor sum;  ///< [T, H, 1]: the sum over the keys of e^(score - max)
};

/// Over no keys: out and sum are 0, max is -infinity. For the queries q.
Partial no_keys(const Tensor& q);

/// Attention of the queries q [Tq, H, D] to the keys k [Tk, H, D] with their values v; its time is counted.
/// causal: query i sees the keys 0 to i, and Tq is Tk. Otherwise every query sees every key.
Partial attend(Rank& rank, const Tensor& q, const Tensor& k, const Tensor& v, bool causal);

/// Seconds that attend() takes for a score: for one query, one key that it sees, one head.
inline constexpr double seconds_per_score = 1e-6;

/// The gradients of q, k and v, if dout [T, H, D] is that of the output of causal attention to all T keys.
Qkv attention_gradients(Rank& rank, const Qkv& x, const Tensor& dout);

/// The sequence is cut into 2 n chunks of equal length, numbered from 0: the two that a rank holds, in its order.
using Chunks = std::array<int, 2>;

struct Answers {
  std::int64_t (*ring_bytes)(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width);
  std::int64_t (*ulysses_bytes)(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width);
  double (*plain_imbalance)(int ranks, std::int64_t length);
  double (*zigzag_imbalance)(int ranks, std::int64_t length);
  double (*tokens_to_hide)(std::int64_t width, double bytes_per_second);
  Partial (*combined)(const Partial& a, const Partial& b);
  Chunks (*chunks_of)(int rank, int ranks);
  Tensor (*ring_attention)(Rank& rank, const Qkv& x);
  Tensor (*to_heads)(Rank& rank, const Tensor& x);
  Tensor (*to_tokens)(Rank& rank, const Tensor& x);
  Tensor (*ulysses_attention)(Rank& rank, const Qkv& x);
  Qkv (*ulysses_backward)(Rank& rank, const Qkv& own_heads, const Tensor& dout);
  Tensor (*gain_gradient)(Rank& rank, const Tensor& normalized, const Tensor& dh);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"05", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::sequence
