// Lab 5: your answer. Fill in the twelve gaps, marked GAP, and run
//
//   ./trireme lab 5
//
// README.md beside this file says what is asked for; lab.h and examples/labs/harness/cluster.h have what you may use.
#include "examples/labs/05_sequence/lab.h"

namespace trireme::labs::sequence {
namespace {

// ---- predictions: first, with pencil and paper ----------------------------------------------------------------------
// n ranks, a sequence of T tokens, H heads of D features, all f32; n divides T and H.

/// Bytes that a rank sends in ring attention, forward.
std::int64_t ring_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width) {
  return 0;  // GAP 1
}

/// Bytes that a rank sends in Ulysses, forward: three tensors to heads, one back.
std::int64_t ulysses_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width) {
  return 0;  // GAP 2
}

/// The work of the rank that has most, over the mean of all ranks; work is the number of scores that are not masked. In
/// the plain order rank r has the r-th run of T/n tokens.
double plain_imbalance(int ranks, std::int64_t length) {
  return 0;  // GAP 3
}
/// The same in the zigzag order.
double zigzag_imbalance(int ranks, std::int64_t length) {
  return 0;  // GAP 4
}

/// How many tokens a rank must have so that a step of the ring, in the zigzag order, computes as long as its message
/// takes. There is no latency; a score takes seconds_per_score (lab.h). Take a step with another rank's keys.
double tokens_to_hide(std::int64_t width, double bytes_per_second) {
  return 0;  // GAP 5
}

// ---- part 1: ring attention -----------------------------------------------------------------------------------------

/// `a` and `b` are of the same queries, over different keys. Returns the result over all of these keys.
Partial combined(const Partial& a, const Partial& b) {
  // maximum(), exp(), + and * of tensors are in autograd/ops.h; [T, H, 1] and [T, H, D] may be multiplied.
  return a;  // GAP 6
}

/// Of the 2 * ranks chunks of a sequence, the two that a rank holds.
Chunks chunks_of(int rank, int ranks) {
  return {2 * rank, 2 * rank + 1};  // GAP 7: this is the plain order
}

/// The first (0) or the second (1) of the two chunks in x.
Tensor half(const Tensor& x, int i) { return view::slice(x, 0, i * (x.size(0) / 2), x.size(0) / 2); }

/// Causal attention of this rank's queries to the keys of all ranks: q, k, v [T/n, H, D] -> [T/n, H, D]. The tokens are
/// those of chunks_of(). Each rank sends to the next one only, while it computes. It has room for the keys and values
/// that it computes with, and for those that arrive next.
Tensor ring_attention(Rank& rank, const Qkv& x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  std::array<Partial, 2> results = {no_keys(half(x.q, 0)), no_keys(half(x.q, 1))};  // of this rank's two chunks
  Tensor held = stack({x.k, x.v});  // [2, T/n, H, D]: keys and values in one message
  // GAP 8: in each step, a message: rank.start([&] { rank.send(held, next); arriving = rank.receive(before); });
  //   beside it, for each chunk of queries and each chunk of the keys held:
  //     results[i] = combined(results[i], attend(rank, half(x.q, i), half(k, j), half(v, j), <causal?>));
  //   whose keys are these, and which chunks see which?
  return concat({results[0].out / results[0].sum, results[1].out / results[1].sum}, 0);
}

// ---- part 2: Ulysses. Rank r has tokens r T/n to (r + 1) T/n - 1 ----------------------------------------------------

/// x [T/n, H, D], all heads of this rank's tokens -> [T, H/n, D], heads r H/n to (r + 1) H/n - 1 of all tokens.
Tensor to_heads(Rank& rank, const Tensor& x) {
  // rank.all_to_all(y) takes y [n, ...], and y[i] arrives on rank i; reshape(), transpose() are in autograd/ops.h.
  return x;  // GAP 9
}

/// The inverse: x [T, H/n, D] -> [T/n, H, D].
Tensor to_tokens(Rank& rank, const Tensor& x) {
  return x;  // GAP 10
}

Tensor ulysses_attention(Rank& rank, const Qkv& x) {
  const Partial all = attend(rank, to_heads(rank, x.q), to_heads(rank, x.k), to_heads(rank, x.v), true);
  return to_tokens(rank, all.out / all.sum);  // [T/n, H, D]
}

/// Its backward. own_heads: q, k, v [T, H/n, D], as forward gave them to attend(); dout [T/n, H, D]. Returns the
/// gradients of x.q, x.k, x.v [T/n, H, D]. attention_gradients() is in lab.h.
Qkv ulysses_backward(Rank& rank, const Qkv& own_heads, const Tensor& dout) {
  return {dout, dout, dout};  // GAP 11
}

// ---- part 3: the gain of a norm under Megatron's sequence parallelism -----------------------------------------------

/// Forward was h = all_gather(normalized * gain): normalized [T/n, D] is of this rank's tokens, in the plain order;
/// gain [D] is the same on all ranks; h is [T, D]. Then each rank multiplied h by its part of a weight, so dh [T, D] is
/// its term of the gradient of h. Returns the whole gradient of gain [D], on every rank.
Tensor gain_gradient(Rank& rank, const Tensor& normalized, const Tensor& dh) {
  return Tensor::zeros({normalized.size(1)});  // GAP 12
}

const Registered registered(answer("learner", {ring_bytes, ulysses_bytes, plain_imbalance, zigzag_imbalance,
                                               tokens_to_hide, combined, chunks_of, ring_attention, to_heads, to_tokens,
                                               ulysses_attention, ulysses_backward, gain_gradient}));

}  // namespace
}  // namespace trireme::labs::sequence
