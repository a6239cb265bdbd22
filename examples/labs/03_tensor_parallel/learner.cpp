// Lab 3: your answer. Fill in the nine gaps, marked GAP, and run
//
//   ./trireme lab 3
//
// README.md beside this file says what is asked for. lab.h has the tensors and their shapes, and what you may use: the
// computations of one rank. Of examples/labs/harness/cluster.h you need rank.all_reduce() and rank.all_reduce_max(),
// which write the result into their tensor.
#include "examples/labs/03_tensor_parallel/lab.h"

namespace trireme::labs::tensor_parallel {
namespace {

// ---- predictions: first, with pencil and paper ---------------------------------------------------------------------

/// All-reduces in the forward of `blocks` transformer blocks. A block is an attention and an MLP.
int all_reduces_forward(int blocks) {
  return 0;  // GAP 1
}

/// All-reduces in their backward.
int all_reduces_backward(int blocks) {
  return 0;  // GAP 2
}

/// Bytes that one rank sends in forward and backward of one MLP, f32. `tokens` is B T, `width` D, `hidden` F. An
/// all-reduce of n elements is a ring, in which a rank sends 2 (tp - 1) messages of n / tp elements.
std::int64_t mlp_bytes(int tp, std::int64_t tokens, std::int64_t width, std::int64_t hidden) {
  return 0;  // GAP 3
}

/// Bytes that one rank sends for the cross-entropy of `tokens` tokens. Each token needs three numbers of all ranks: the
/// largest logit, the sum of exponentials, and the target's logit. tp divides `tokens`.
std::int64_t loss_bytes(int tp, std::int64_t tokens, std::int64_t vocabulary) {
  return 0;  // GAP 4
}

// ---- part 1: an MLP ------------------------------------------------------------------------------------------------

/// x [B, T, D], the same on all ranks, as y is to be.
Forward<MlpKept> mlp_forward(Rank& rank, const Mlp& part, const Tensor& x) {
  Tensor before, hidden, y;
  // before = linear(x, part.up, ...);
  // GAP 5
  return {y, {x, before, hidden}};
}

/// dy [B, T, D], the same on all ranks, as dx is to be. The gradients are those of `part`.
Backward<Mlp> mlp_backward(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  Tensor dx;
  Mlp gradients;
  // gradients.down = weight_gradient(dy, ...);
  // GAP 6
  return {dx, gradients};
}

// ---- part 2: attention ---------------------------------------------------------------------------------------------

/// As for the MLP. A rank computes with its own heads.
Forward<AttentionKept> attention_forward(Rank& rank, const Attention& part, const Tensor& x) {
  Tensor q, k, v, mixed, y;
  // mixed = mix(q, k, v, part.head_width);
  // GAP 7
  return {y, {x, q, k, v, mixed}};
}

Backward<Attention> attention_backward(Rank& rank, const Attention& part, const AttentionKept& kept, const Tensor& dy) {
  Tensor dx;
  Attention gradients;
  // const auto [dq, dk, dv] = mix_backward(kept.q, kept.k, kept.v, ..., part.head_width);
  // GAP 8
  return {dx, gradients};
}

// ---- part 3: the loss ----------------------------------------------------------------------------------------------

/// The loss -log softmax(logits)[target] of each token, and the gradient of their sum for this rank's logits.
///
/// logits [N, V/tp]: rank r has the columns from r ceil(V / tp) on; ceil(V / tp) of them, and the last rank what is
/// left. targets [N], i32, from 0 to V - 1, the same on all ranks. vocabulary: V.
Loss cross_entropy(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary) {
  Tensor loss, dlogits;
  // Single elements: targets.data<std::int32_t>()[n], logits.data<float>()[n * logits.size(1) + column].
  // max(logits, 1, true) is [N, 1], and broadcasts.
  // GAP 9
  return {loss, dlogits};
}

const Registered registered(answer("learner",
                                   {mlp_forward, mlp_backward, attention_forward, attention_backward, cross_entropy,
                                    all_reduces_forward, all_reduces_backward, mlp_bytes, loss_bytes}));

}  // namespace
}  // namespace trireme::labs::tensor_parallel
