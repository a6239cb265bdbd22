// Lab 5: a solution. nn/ring_attention.cpp and nn/context_attention.cpp do the same with kernels that batch and heads
// share, and ring attention has its backward there.
#include "examples/labs/05_sequence/solution.h"

namespace trireme::labs::sequence::solution {

// All blocks of keys and values but the one that arrives last are passed on.
std::int64_t ring_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width) {
  return 2 * (ranks - 1) * (length / ranks) * heads * width * 4;
}

// q, k, v and the output, each but the n-th that stays.
std::int64_t ulysses_bytes(int ranks, std::int64_t length, std::int64_t heads, std::int64_t width) {
  return 4 * (ranks - 1) * (length / ranks) * (heads / ranks) * width * 4;
}

// The last rank's queries see all keys before its own tokens, and a triangle of its own.
double plain_imbalance(int ranks, std::int64_t length) {
  const auto all = static_cast<double>(length), own = all / ranks;
  const double most = own * (all - own) + own * (own + 1) / 2, total = all * (all + 1) / 2;
  return most / (total / ranks);
}

// What a rank's early chunk lacks, its late chunk has.
double zigzag_imbalance(int, std::int64_t) { return 1; }

// For t tokens a rank, a step computes t^2 / 2 scores a head, and its message has 2 t D numbers a head.
double tokens_to_hide(std::int64_t width, double bytes_per_second) {
  return 2 * 2 * static_cast<double>(width) * 4 / (bytes_per_second * seconds_per_score);
}

// Both sums have to refer to the same maximum before they may be added.
Partial combined(const Partial& a, const Partial& b) {
  const Tensor max = maximum(a.max, b.max);                             // [T, H, 1]
  const Tensor scale_a = exp(a.max - max), scale_b = exp(b.max - max);  // [T, H, 1]
  return {scale_a * a.out + scale_b * b.out, max, scale_a * a.sum + scale_b * b.sum};
}

Chunks chunks_of(int rank, int ranks) { return {rank, 2 * ranks - 1 - rank}; }

Tensor half(const Tensor& x, int i) { return view::slice(x, 0, i * (x.size(0) / 2), x.size(0) / 2); }

Tensor ring_attention(Rank& rank, const Qkv& x) {
  const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n;
  const Chunks mine = chunks_of(rank.rank(), n);
  std::array<Partial, 2> results = {no_keys(half(x.q, 0)), no_keys(half(x.q, 1))};
  Tensor held = stack({x.k, x.v});  // [2, T/n, H, D]: keys and values in one message
  for (int step = 0; step < n; ++step) {
    const bool more = step + 1 < n;
    Tensor arriving;
    int message = -1;
    if (more)
      message = rank.start([&] {
        rank.send(held, next);
        arriving = rank.receive(before);
      });
    const Tensor k = select(held, 0, 0), v = select(held, 0, 1);  // [T/n, H, D]
    const Chunks theirs = chunks_of((rank.rank() + n - step) % n, n);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        const int query = mine[i], key = theirs[j];
        if (key > query) continue;  // these keys are later than all of these queries
        const Partial part = attend(rank, half(x.q, i), half(k, j), half(v, j), key == query);
        results[i] = combined(results[i], part);
      }
    }
    if (more) rank.wait(message);
    held = arriving;
  }
  return concat({results[0].out / results[0].sum, results[1].out / results[1].sum}, 0);  // [T/n, H, D]
}

Tensor to_heads(Rank& rank, const Tensor& x) {
  const std::int64_t n = rank.size(), tokens = x.size(0), heads = x.size(1) / n, width = x.size(2);
  const Tensor by_rank = transpose(reshape(x, {tokens, n, heads, width}), 0, 1);     // [n, T/n, H/n, D], n: of heads
  return reshape(rank.all_to_all(contiguous(by_rank)), {n * tokens, heads, width});  // n: of tokens
}

Tensor to_tokens(Rank& rank, const Tensor& x) {
  const std::int64_t n = rank.size(), tokens = x.size(0) / n, heads = x.size(1), width = x.size(2);
  const Tensor by_rank = rank.all_to_all(reshape(x, {n, tokens, heads, width}));  // [n, T/n, H/n, D], n: of heads
  return reshape(transpose(by_rank, 0, 1), {tokens, n * heads, width});
}

Tensor ulysses_attention(Rank& rank, const Qkv& x) {
  const Partial all = attend(rank, to_heads(rank, x.q), to_heads(rank, x.k), to_heads(rank, x.v), true);
  return to_tokens(rank, all.out / all.sum);  // [T/n, H, D]
}

// Each all_to_all moves numbers and changes none: its backward moves their gradients the way back.
Qkv ulysses_backward(Rank& rank, const Qkv& own_heads, const Tensor& dout) {
  const Qkv d = attention_gradients(rank, own_heads, to_heads(rank, dout));  // [T, H/n, D]
  return {to_tokens(rank, d.q), to_tokens(rank, d.k), to_tokens(rank, d.v)};
}

// The backward of the gather sums the ranks' terms, for this rank's tokens. The gain's gradient is a sum over all
// tokens, of which each rank has some.
Tensor gain_gradient(Rank& rank, const Tensor& normalized, const Tensor& dh) {
  const std::int64_t n = rank.size();
  const Tensor dy = rank.reduce_scatter(reshape(dh, {n, dh.size(0) / n, dh.size(1)}));  // [T/n, D]
  const Tensor gradient = contiguous(sum(dy * normalized, 0));                          // [D]
  rank.all_reduce(gradient);
  return gradient;
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::sequence::solution
