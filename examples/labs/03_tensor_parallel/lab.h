// Lab 3, tensor parallelism: what learner.cpp is to contain, and what its functions are given.
// Read next: README.md beside this file, then learner.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "autograd/engine.h"
#include "autograd/ops.h"
#include "examples/labs/harness/grading.h"

namespace trireme::labs::tensor_parallel {

// All ranks of a run are tp ranks. B sequences, T tokens each, D features of the residual stream, F hidden units, H
// heads with Dh features: D = H Dh. Weights are [out, in], as in PyTorch. What is cut is cut in the order of ranks:
// rank 0 has the first F/tp hidden units, the first H/tp heads, the first columns of logits.

/// y = gelu(x up^T + up_bias) down^T + down_bias, or one rank's part of it.
struct Mlp {
  Tensor up, up_bias;      // [F/tp, D], [F/tp]: column-parallel
  Tensor down, down_bias;  // [D, F/tp], [D]: row-parallel; every rank has the whole bias
};
/// What backward needs of forward.
struct MlpKept {
  Tensor x;               // [B, T, D]
  Tensor before, hidden;  // [B, T, F/tp], before and after GELU
};

/// y = mix(x q^T, x k^T, x v^T) out^T + out_bias, or one rank's part of it: its own heads.
struct Attention {
  Tensor q, k, v;             // [D/tp, D]: column-parallel
  Tensor out, out_bias;       // [D, D/tp], [D]: row-parallel; every rank has the whole bias
  std::int64_t head_width{};  // Dh
};
/// What backward needs of forward.
struct AttentionKept {
  Tensor x;        // [B, T, D]
  Tensor q, k, v;  // [B, T, D/tp]
  Tensor mixed;    // [B, T, D/tp]
};

template <class Kept>
struct Forward {
  Tensor y;  // [B, T, D]: on every rank the whole result
  Kept kept;
};
template <class Weights>
struct Backward {
  Tensor dx;          // [B, T, D]: on every rank the whole gradient of x
  Weights gradients;  // of this rank's part
};

struct Loss {
  Tensor loss;     // [N], of each token; on every rank
  Tensor dlogits;  // [N, V/tp]: the gradient of the sum of the losses
};

// ---- given: computations of one rank -------------------------------------------------------------------------------
// Of autograd/ops.h you need linear(x, weight, bias), whose bias may be {}; matmul(dy, weight), the gradient of
// linear's x; gelu(x); and for the loss operators, exp, log, max and sum. Tensor::zeros({n, m}) makes a tensor,
// copy(from, to) writes into one, view::select and view::slice give a part of one.

/// x [B, T, n] as [B T, n].
inline Tensor as_rows(const Tensor& x) { return reshape(x, {-1, x.size(-1)}); }

/// The gradient of the weight of y = linear(x, weight, bias): dy^T x, [out, in].
inline Tensor weight_gradient(const Tensor& dy, const Tensor& x) {
  return matmul(transpose(as_rows(dy), 0, 1), as_rows(x));
}
/// The gradient of its bias: the sum of dy over all tokens, [out].
inline Tensor bias_gradient(const Tensor& dy) { return sum(as_rows(dy), 0); }

/// The gradient of x, if dy is that of gelu(x) = x P(x): (P(x) + x p(x)) dy, with P the distribution function of a
/// standard normal number and p its density.
inline Tensor gelu_backward(const Tensor& dy, const Tensor& x) {
  Tensor dx = clone(dy);
  const Tensor at = contiguous(x);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double value = at.data<float>()[i];
    const double below = 0.5 * std::erfc(-value / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * value * value) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    dx.data<float>()[i] *= static_cast<float>(below + value * density);
  }
  return dx;
}

/// Causal attention of the heads that lie side by side in q, k, v [B, T, heads * Dh] -> [B, T, heads * Dh].
inline Tensor mix(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t head_width) {
  const auto heads = [&](const Tensor& x) { return reshape(x, {x.size(0), x.size(1), -1, head_width}); };
  return flatten(attention(heads(q), heads(k), heads(v)), 2);
}
struct MixGradients {
  Tensor dq, dk, dv;  // [B, T, heads * Dh]
};
inline MixGradients mix_backward(Tensor q, Tensor k, Tensor v, const Tensor& dmixed, std::int64_t head_width) {
  for (Tensor* x : {&q, &k, &v}) require_grad(*x);
  backward(mix(q, k, v, head_width), dmixed);
  return {grad(q), grad(k), grad(v)};
}

// ---- the answer ----------------------------------------------------------------------------------------------------

struct Answers {
  Forward<MlpKept> (*mlp_forward)(Rank& rank, const Mlp& part, const Tensor& x);
  Backward<Mlp> (*mlp_backward)(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy);
  Forward<AttentionKept> (*attention_forward)(Rank& rank, const Attention& part, const Tensor& x);
  Backward<Attention> (*attention_backward)(Rank& rank, const Attention& part, const AttentionKept& kept,
                                            const Tensor& dy);
  Loss (*cross_entropy)(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary);
  int (*all_reduces_forward)(int blocks);
  int (*all_reduces_backward)(int blocks);
  std::int64_t (*mlp_bytes)(int tp, std::int64_t tokens, std::int64_t width, std::int64_t hidden);
  std::int64_t (*loss_bytes)(int tp, std::int64_t tokens, std::int64_t vocabulary);
};

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return {"03", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected)};
}

}  // namespace trireme::labs::tensor_parallel
