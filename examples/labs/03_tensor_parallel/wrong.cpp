// Lab 3: wrong answers, each with a part of the message that it must get. Most give plausible numbers; the last three
// try to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is
// right.
#include <map>
#include <mutex>
#include <tuple>

#include "examples/labs/03_tensor_parallel/solution.h"

namespace trireme::labs::tensor_parallel {
namespace {

/// The solution with another function in the place of one of its own.
template <class Function>
Answer wrong(std::string name, Function Answers::*which, Function function, std::string expected) {
  Answers answers = solution::answers;
  answers.*which = function;
  return answer(std::move(name), answers, std::move(expected));
}

// ---- the MLP -------------------------------------------------------------------------------------------------------

/// Every rank adds the bias to its term.
Forward<MlpKept> bias_on_every_rank(Rank& rank, const Mlp& part, const Tensor& x) {
  const Tensor before = linear(x, part.up, part.up_bias), hidden = gelu(before);
  const Tensor y = linear(hidden, part.down, part.down_bias);
  rank.all_reduce(y);
  return {y, {x, before, hidden}};
}
const Registered a(wrong("bias on every rank", &Answers::mlp_forward, bias_on_every_rank,
                         "y: down_bias is in it 2 times; expected once"));

/// The sum is made of the hidden units, as if the ranks had terms of them.
Forward<MlpKept> sum_after_gelu(Rank& rank, const Mlp& part, const Tensor& x) {
  const Tensor before = linear(x, part.up, part.up_bias), hidden = gelu(before);
  rank.all_reduce(hidden);
  return {linear(hidden, part.down, part.down_bias), {x, before, hidden}};
}
const Registered b(wrong("the sum after GELU", &Answers::mlp_forward, sum_after_gelu, "y differs between ranks"));

/// As one rank would do it: no sum at all.
Forward<MlpKept> no_sum(Rank&, const Mlp& part, const Tensor& x) {
  const Tensor before = linear(x, part.up, part.up_bias), hidden = gelu(before);
  return {linear(hidden, part.down, part.down_bias), {x, before, hidden}};
}
const Registered c(wrong("no sum in forward", &Answers::mlp_forward, no_sum, "y differs between ranks"));

/// The hidden units are gathered before the sum, for safety.
Forward<MlpKept> gathers_hidden(Rank& rank, const Mlp& part, const Tensor& x) {
  rank.all_gather(gelu(linear(x, part.up, part.up_bias)));
  return solution::mlp_forward(rank, part, x);
}
const Registered d(wrong("gathers the hidden units", &Answers::mlp_forward, gathers_hidden, "are enough"));

/// The gradient of x is left as this rank found it.
Backward<Mlp> no_sum_of_dx(Rank&, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  const Tensor dbefore = gelu_backward(matmul(dy, part.down), kept.before);
  return {
      matmul(dbefore, part.up),
      {weight_gradient(dbefore, kept.x), bias_gradient(dbefore), weight_gradient(dy, kept.hidden), bias_gradient(dy)}};
}
const Registered e(wrong("no sum of dx", &Answers::mlp_backward, no_sum_of_dx,
                         "dx: the ranks have 2 different tensors, whose sum is right"));

/// Forward had an all-reduce here, so backward gets one too.
Backward<Mlp> sum_of_dy(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  const Tensor total = clone(dy);
  rank.all_reduce(total);
  return solution::mlp_backward(rank, part, kept, total);
}
const Registered f(wrong("the sum of dy", &Answers::mlp_backward, sum_of_dy,
                         "the gradient of down_bias on rank 0: every element is 2 times what it should be"));

/// The bias is on all ranks, so its gradient is summed, as in data parallelism.
Backward<Mlp> sum_of_bias_gradients(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  const Backward<Mlp> result = solution::mlp_backward(rank, part, kept, dy);
  rank.all_reduce(result.gradients.down_bias);
  return result;
}
const Registered g(wrong("the sum of the bias's gradients", &Answers::mlp_backward, sum_of_bias_gradients,
                         "the gradient of down_bias on rank 0: every element is 2 times what it should be"));

// ---- attention -----------------------------------------------------------------------------------------------------

/// An all-reduce for each of the three products with x.
Backward<Attention> three_sums(Rank& rank, const Attention& part, const AttentionKept& kept, const Tensor& dy) {
  const auto [dq, dk, dv] = mix_backward(kept.q, kept.k, kept.v, matmul(dy, part.out), part.head_width);
  const Tensor by_q = matmul(dq, part.q), by_k = matmul(dk, part.k), by_v = matmul(dv, part.v);
  for (const Tensor& term : {by_q, by_k, by_v}) rank.all_reduce(term);
  return {by_q + by_k + by_v,
          {weight_gradient(dq, kept.x), weight_gradient(dk, kept.x), weight_gradient(dv, kept.x),
           weight_gradient(dy, kept.mixed), bias_gradient(dy), part.head_width}};
}
const Registered h(wrong("three sums of dx", &Answers::attention_backward, three_sums, "backward: rank 0 sent"));

/// x goes into three products; here only that with q counts.
Backward<Attention> dx_of_q(Rank& rank, const Attention& part, const AttentionKept& kept, const Tensor& dy) {
  Backward<Attention> result = solution::attention_backward(rank, part, kept, dy);
  result.dx = matmul(mix_backward(kept.q, kept.k, kept.v, matmul(dy, part.out), part.head_width).dq, part.q);
  rank.all_reduce(result.dx);
  return result;
}
const Registered i(wrong("dx of q alone", &Answers::attention_backward, dx_of_q, "dx on rank 0"));

// ---- the loss ------------------------------------------------------------------------------------------------------

/// What a wrong loss does otherwise than the solution.
struct Mistakes {
  bool maximum = true;         // of all ranks; else each has its own,
  bool rescale = false;        // ... and multiplies its sum by exp(its own)
  bool local_softmax = false;  // the gradient's denominator is this rank's
  bool offset = true;          // a target is a column of all, else of this rank
  bool own_width = false;      // the first column is computed from this rank's number of columns
};

Loss mistaken(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary, Mistakes mistakes) {
  const std::int64_t tokens = logits.size(0), own = logits.size(1), n = rank.size();
  const std::int64_t first = !mistakes.offset ? 0 : rank.rank() * (mistakes.own_width ? own : (vocabulary + n - 1) / n);
  const Tensor largest = max(logits, 1, true);  // [N, 1]
  if (mistakes.maximum) rank.all_reduce_max(largest);
  const Tensor exponentials = exp(logits - largest), local = sum(exponentials, 1, true);  // [N, V/tp], [N, 1]
  const Tensor denominator = mistakes.rescale ? local * exp(largest) : clone(local);
  const Tensor one_hot = Tensor::zeros(logits.shape());
  for (std::int64_t token = 0; token < tokens; ++token)
    if (const auto column = targets.data<std::int32_t>()[token] - first; column >= 0 && column < own)
      one_hot.data<float>()[token * own + column] = 1;
  const Tensor target = sum(logits * one_hot, 1);  // [N]
  rank.all_reduce(denominator);
  rank.all_reduce(target);
  const Tensor loss = log(squeeze(denominator, 1)) - target;
  const Tensor& divisor = mistakes.local_softmax ? local : denominator;
  const Tensor p = (mistakes.rescale ? exp(logits) : exponentials) / divisor;
  return {mistakes.rescale ? loss : loss + squeeze(largest, 1), p - one_hot};
}
template <Mistakes mistakes>
Loss with(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary) {
  return mistaken(rank, logits, targets, vocabulary, mistakes);
}
const Registered j(wrong("each rank's own maximum", &Answers::cross_entropy, with<{.maximum = false}>,
                         "by exactly the difference of the largest logits in their columns"));
const Registered k(wrong("each rank's own maximum, undone too early", &Answers::cross_entropy,
                         with<{.maximum = false, .rescale = true}>, "cross_entropy: logits of 10000: loss"));
const Registered l(wrong("a softmax of own columns", &Answers::cross_entropy, with<{.local_softmax = true}>,
                         "1 + the sum of a token's dlogits over all ranks: every element is 2 times"));
const Registered m(wrong("targets without offset", &Answers::cross_entropy, with<{.offset = false}>, "loss on rank 0"));
const Registered n(wrong("offset of the own width", &Answers::cross_entropy, with<{.own_width = true}>,
                         "a last rank with fewer columns: loss: wrong for"));

/// Gathers the logits first.
Loss gathers_logits(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary) {
  const std::int64_t width = (vocabulary + rank.size() - 1) / rank.size();
  rank.all_gather(pad(logits, 1, 0, width - logits.size(1)));
  return solution::cross_entropy(rank, logits, targets, vocabulary);
}
const Registered o(wrong("gathers the logits", &Answers::cross_entropy, gathers_logits, "tokens: rank 0 sent"));

/// A prediction: as if the logits were sent.
const Registered p(wrong<std::int64_t (*)(int, std::int64_t, std::int64_t)>(
    "bytes of the logits", &Answers::loss_bytes,
    [](int tp, std::int64_t tokens, std::int64_t vocabulary) { return (tp - 1) * tokens * (vocabulary / tp) * 4; },
    "prediction: bytes that a rank sends for the loss"));

// ---- attempts at cheating ------------------------------------------------------------------------------------------

/// The ranks' parts of a weight, put together along `dim`.
Tensor gathered(Rank& rank, const Tensor& part, int dim) {
  std::vector<Tensor> parts = unbind(rank.all_gather(part), 0);
  return concat(parts, dim);
}

/// All weights on every rank, and no sum.
Forward<MlpKept> gathers_weights(Rank& rank, const Mlp& part, const Tensor& x) {
  const Tensor up = gathered(rank, part.up, 0), up_bias = gathered(rank, part.up_bias, 0);
  const Tensor y = linear(gelu(linear(x, up, up_bias)), gathered(rank, part.down, 1), part.down_bias);
  const Tensor before = linear(x, part.up, part.up_bias);
  return {y, {x, before, gelu(before)}};
}
const Registered q(wrong("cheat: all weights on every rank", &Answers::mlp_forward, gathers_weights,
                         "mlp: no more bytes than needed: forward: rank 0 sent"));

/// Ranks are threads: they could look into each other's memory.
std::mutex mutex;
std::map<int, Tensor> terms;  // by rank, of dx

/// The sum of dx by memory that all threads see; a message that holds nothing says that it is there.
Backward<Mlp> shared_memory(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  Backward<Mlp> result = no_sum_of_dx(rank, part, kept, dy);
  const auto wait_for_all = [&] { rank.all_reduce(Tensor::zeros({1})); };
  {
    const std::scoped_lock lock(mutex);
    terms[rank.rank()] = clone(result.dx);
  }
  wait_for_all();
  result.dx = Tensor::zeros(dy.shape());
  for (int r = 0; r < rank.size(); ++r) result.dx += terms.at(r);
  wait_for_all();
  return result;
}
const Registered r(wrong("cheat: shared memory", &Answers::mlp_backward, shared_memory, "by messages only"));

/// Sends little: the first loss, again and again.
Loss remembers(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary) {
  static std::map<std::tuple<int, int, std::int64_t, std::int64_t>, Loss> known;
  const std::tuple key(rank.rank(), rank.size(), logits.size(0), vocabulary);
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  Loss loss = solution::cross_entropy(rank, logits, targets, vocabulary);
  const std::scoped_lock lock(mutex);
  return known[key] = loss;
}
const Registered s(wrong("cheat: remembers", &Answers::cross_entropy, remembers, "loss"));

}  // namespace
}  // namespace trireme::labs::tensor_parallel
