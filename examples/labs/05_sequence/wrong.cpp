// Lab 5: wrong answers, each with a part of the message that it must get. Most give plausible numbers; the last five
// try to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what is
// right.
#include "examples/labs/05_sequence/solution.h"
#include "examples/labs/harness/cheats.h"

namespace trireme::labs::sequence {
namespace {

using solution::half;

/// The solution with one function replaced.
template <class Function>
Answer wrong(std::string name, Function Answers::*member, Function function, std::string expected) {
  Answers answers = solution::answers;
  answers.*member = function;
  return answer(std::move(name), answers, std::move(expected));
}

/// Attention's result of a rank's two chunks, as keys come in.
struct Results {
  std::array<Partial, 2> of_chunk;

  explicit Results(const Qkv& x) : of_chunk{no_keys(half(x.q, 0)), no_keys(half(x.q, 1))} {}
  Tensor out() const { return concat({of_chunk[0].out / of_chunk[0].sum, of_chunk[1].out / of_chunk[1].sum}, 0); }
};

/// What a ring may do otherwise than the solution.
struct Ring {
  int steps_less = 0;
  bool sends_in_last_step = false, overlaps = true;
  int direction = -1;  // step 1 takes the keys for those of rank + direction
  Chunks (*of_queries)(int, int) = solution::chunks_of;
  Chunks (*of_keys)(int, int) = solution::chunks_of;
  bool masks_diagonal = true, skips_later = true;

  /// Adds what the keys and values kv [2, T/n, H, D] of rank `source` contribute.
  void attend_to(Results& results, Rank& rank, const Qkv& x, const Tensor& kv, int source) const {
    const Chunks mine = of_queries(rank.rank(), rank.size()), theirs = of_keys(source, rank.size());
    const Tensor k = select(kv, 0, 0), v = select(kv, 0, 1);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (skips_later && theirs[at(j)] > mine[at(i)]) continue;
        const bool causal = masks_diagonal && theirs[at(j)] == mine[at(i)];
        Partial& result = results.of_chunk[at(i)];
        result = solution::combined(result, attend(rank, half(x.q, i), half(k, j), half(v, j), causal));
      }
    }
  }

  Tensor attention(Rank& rank, const Qkv& x) const {
    const int n = rank.size(), next = (rank.rank() + 1) % n, before = (rank.rank() + n - 1) % n, steps = n - steps_less;
    Results results(x);
    Tensor held = stack({x.k, x.v});
    for (int step = 0; step < steps; ++step) {
      Tensor arriving;
      const auto exchange = [&] {
        rank.send(held, next);
        arriving = rank.receive(before);
      };
      const bool more = step + 1 < steps || sends_in_last_step;
      const int message = more && overlaps ? rank.start(exchange) : -1;
      attend_to(results, rank, x, held, (rank.rank() + n + direction * step) % n);
      if (message >= 0) rank.wait(message);
      if (more && !overlaps) exchange();
      held = arriving;
    }
    return results.out();
  }
};

using RingAttention = Tensor (*)(Rank&, const Qkv&);
Answer wrong_ring(std::string name, RingAttention function, std::string expected) {
  return wrong(std::move(name), &Answers::ring_attention, function, std::move(expected));
}

// ---- combining ------------------------------------------------------------------------------------------------------

/// Adds sums that refer to two maxima.
Partial not_rescaled(const Partial& a, const Partial& b) {
  return {a.out + b.out, maximum(a.max, b.max), a.sum + b.sum};
}
const Registered a(wrong("not rescaled", &Answers::combined, not_rescaled, "out / sum of"));

Partial sum_not_rescaled(const Partial& a, const Partial& b) {
  const Partial right = solution::combined(a, b);
  return {right.out, right.max, a.sum + b.sum};
}
const Registered b(wrong("the sum is not rescaled", &Answers::combined, sum_not_rescaled, "out / sum of"));

/// Back to e^score: right as long as that is a number.
Partial without_maximum(const Partial& a, const Partial& b) {
  const Tensor of_a = exp(a.max), of_b = exp(b.max);
  return {of_a * a.out + of_b * b.out, Tensor::zeros(a.max.shape()), of_a * a.sum + of_b * b.sum};
}
const Registered c(wrong("without the maximum", &Answers::combined, without_maximum, "not a number"));

// ---- the ring -------------------------------------------------------------------------------------------------------

Chunks plain(int rank, int) { return {2 * rank, 2 * rank + 1}; }
Chunks local(int, int) { return {0, 1}; }

const Registered d([] {
  Answers answers = solution::answers;
  answers.chunks_of = plain;
  answers.ring_attention = [](Rank& rank, const Qkv& x) {
    return Ring{.of_queries = plain, .of_keys = plain}.attention(rank, x);
  };
  return answer("the plain order", answers, "times the mean work");
}());
const Registered e(wrong(
    "chunks on two ranks", &Answers::chunks_of,
    +[](int rank, int ranks) {
      return Chunks{rank, 2 * ranks - 2 - rank};
    },
    "again on rank"));
const Registered f(wrong_ring(
    "zigzag for the queries only", [](Rank& rank, const Qkv& x) { return Ring{.of_keys = plain}.attention(rank, x); },
    "output on rank"));
const Registered g(wrong_ring(
    "masks by local positions",
    [](Rank& rank, const Qkv& x) { return Ring{.of_queries = local, .of_keys = local}.attention(rank, x); },
    "output on rank"));
const Registered h(wrong_ring(
    "the diagonal is not masked",
    [](Rank& rank, const Qkv& x) { return Ring{.masks_diagonal = false}.attention(rank, x); },
    "output on rank 0 of 2"));
const Registered i(wrong_ring(
    "nothing is skipped", [](Rank& rank, const Qkv& x) { return Ring{.skips_later = false}.attention(rank, x); },
    "output on rank 0 of 2"));
const Registered j(wrong_ring(
    "one step short", [](Rank& rank, const Qkv& x) { return Ring{.steps_less = 1}.attention(rank, x); },
    "output on rank 0 of 2"));
const Registered k(wrong_ring(
    "the other way round", [](Rank& rank, const Qkv& x) { return Ring{.direction = 1}.attention(rank, x); },
    "output on rank"));
const Registered l(wrong_ring(
    "sends in the last step, too",
    [](Rank& rank, const Qkv& x) { return Ring{.sends_in_last_step = true}.attention(rank, x); },
    "times the keys and values of one rank"));
const Registered m(wrong_ring(
    "no overlap", [](Rank& rank, const Qkv& x) { return Ring{.overlaps = false}.attention(rank, x); },
    "where does a rank wait?"));

// ---- Ulysses, and the gain ------------------------------------------------------------------------------------------

/// Heads and tokens of what arrives are not exchanged before they become one dim.
Tensor mixes_heads(Rank& rank, const Tensor& x) {
  const std::int64_t n = rank.size(), tokens = x.size(0) / n, heads = x.size(1), width = x.size(2);
  return reshape(rank.all_to_all(reshape(x, {n, tokens, heads, width})), {tokens, n * heads, width});
}
const Registered n(wrong("mixes heads and tokens", &Answers::to_tokens, mixes_heads, "to_tokens(x) on rank"));

/// Rank r gets heads r, n + r, 2 n + r, ...
Tensor every_nth_head(Rank& rank, const Tensor& x) {
  const std::int64_t n = rank.size(), tokens = x.size(0), heads = x.size(1) / n, width = x.size(2);
  const Tensor by_rank = permute(reshape(x, {tokens, heads, n, width}), {2, 0, 1, 3});
  return reshape(rank.all_to_all(contiguous(by_rank)), {n * tokens, heads, width});
}
const Registered o(wrong("every n-th head", &Answers::to_heads, every_nth_head, "to_heads(x) on rank"));

/// Every rank has gradients of its heads, for all tokens: they look like terms of a sum.
Qkv sums_gradients(Rank& rank, const Qkv& own_heads, const Tensor& dout) {
  Qkv d = solution::ulysses_backward(rank, own_heads, dout);
  for (Tensor* gradient : {&d.k, &d.v}) rank.all_reduce(*gradient);
  return d;
}
const Registered p(wrong("sums gradients", &Answers::ulysses_backward, sums_gradients, "gradient of k on rank"));

/// Without the sum over the ranks' tokens.
Tensor own_tokens_only(Rank& rank, const Tensor& normalized, const Tensor& dh) {
  const std::int64_t n = rank.size();
  const Tensor dy = rank.reduce_scatter(reshape(dh, {n, dh.size(0) / n, dh.size(1)}));
  return contiguous(sum(dy * normalized, 0));
}
const Registered q(wrong("own tokens only", &Answers::gain_gradient, own_tokens_only, "gradient of gain on rank 0"));

/// Without the other ranks' terms of dh.
Tensor own_term_only(Rank& rank, const Tensor& normalized, const Tensor& dh) {
  const std::int64_t tokens = normalized.size(0);
  const Tensor gradient = contiguous(sum(slice(dh, 0, rank.rank() * tokens, tokens) * normalized, 0));
  rank.all_reduce(gradient);
  return gradient;
}
const Registered r(wrong("own term only", &Answers::gain_gradient, own_term_only, "gradient of gain on rank 0"));

/// Everything is summed on every rank.
Tensor sums_everything(Rank& rank, const Tensor& normalized, const Tensor& dh) {
  rank.all_reduce(dh);
  const std::int64_t tokens = normalized.size(0);
  const Tensor gradient = contiguous(sum(slice(dh, 0, rank.rank() * tokens, tokens) * normalized, 0));
  rank.all_reduce(gradient);
  return gradient;
}
const Registered s(wrong("sums all of dh", &Answers::gain_gradient, sums_everything,
                         "more than a sum for each rank's"));

const Registered t(wrong(
    "bytes of the keys only", &Answers::ring_bytes,
    +[](int ranks, std::int64_t length, std::int64_t heads, std::int64_t width) {
      return (ranks - 1) * (length / ranks) * heads * width * 4;
    },
    "predicted"));

// ---- attempts at cheating -------------------------------------------------------------------------------------------

/// Attention to all keys. `blocks`: those of each rank.
Tensor attend_to_all(Rank& rank, const Qkv& x, const std::vector<Tensor>& blocks) {
  Results results(x);
  for (int source = 0; source < rank.size(); ++source) Ring().attend_to(results, rank, x, blocks[at(source)], source);
  return results.out();
}

/// An all-gather, from neighbour to neighbour, before anything is computed.
Tensor gathers_first(Rank& rank, const Qkv& x) {
  const int n = rank.size();
  std::vector<Tensor> blocks(at(n));
  blocks[at(rank.rank())] = stack({x.k, x.v});
  for (int step = 0; step + 1 < n; ++step) {
    rank.send(blocks[at((rank.rank() + n - step) % n)], (rank.rank() + 1) % n);
    blocks[at((rank.rank() + n - step - 1) % n)] = rank.receive((rank.rank() + n - 1) % n);
  }
  return attend_to_all(rank, x, blocks);
}
const Registered u(wrong_ring("cheat: gathers first", gathers_first, "where does a rank wait?"));

/// The same in the background, beside the computation: no rank waits, but each has the keys of all.
Tensor gathers_at_once(Rank& rank, const Qkv& x) {
  const int n = rank.size();
  std::vector<Tensor> blocks(at(n));  // by step
  blocks[0] = stack({x.k, x.v});
  std::vector<int> messages(at(n));
  for (int step = 1; step < n; ++step)
    messages[at(step)] = rank.start([&rank, &blocks, step, n] {
      rank.send(blocks[at(step - 1)], (rank.rank() + 1) % n);
      blocks[at(step)] = rank.receive((rank.rank() + n - 1) % n);
    });
  Results results(x);
  for (int step = 0; step < n; ++step) {
    if (step > 0) rank.wait(messages[at(step)]);
    Ring().attend_to(results, rank, x, blocks[at(step)], (rank.rank() + n - step) % n);
  }
  return results.out();
}
const Registered v(wrong_ring("cheat: gathers at once", gathers_at_once, "They need memory"));

/// Every rank sends its keys and values to every other.
Tensor sends_to_all(Rank& rank, const Qkv& x) {
  const int n = rank.size();
  std::vector<Tensor> blocks(at(n));
  blocks[at(rank.rank())] = stack({x.k, x.v});
  for (int other = 0; other < n; ++other)
    if (other != rank.rank()) rank.send(blocks[at(rank.rank())], other);
  for (int other = 0; other < n; ++other)
    if (other != rank.rank()) blocks[at(other)] = rank.receive(other);
  return attend_to_all(rank, x, blocks);
}
const Registered w(wrong_ring("cheat: sends to all", sends_to_all, "sends to other ranks than"));

/// Ranks are threads: they could look into each other's memory.
Tensor shared_memory(Rank& rank, const Qkv& x) {
  static cheats::Shared<Tensor> shared;
  std::vector<Tensor> blocks;
  for (const auto& [r, part] : shared.with(rank, stack({x.k, x.v}))) blocks.push_back(part);
  cheats::meet(rank);
  return attend_to_all(rank, x, blocks);
}
const Registered y(wrong_ring("cheat: shared memory", shared_memory, "by messages only"));

/// Attention that no clock counts: with other code than attend().
Tensor uncounted(Rank& rank, const Qkv& x) {
  const auto heads = [&](const Tensor& part) {
    return unsqueeze(solution::to_heads(rank, part), 0);
  };  // [1, T, H/n, D]
  return solution::to_tokens(rank, squeeze(attention(heads(x.q), heads(x.k), heads(x.v), true), 0));
}
const Registered z(wrong("cheat: uncounted", &Answers::ulysses_attention, uncounted, "computed for 0.000 ms"));

}  // namespace
}  // namespace trireme::labs::sequence
