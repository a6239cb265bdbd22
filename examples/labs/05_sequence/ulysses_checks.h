// Checks of Ulysses and of a norm's gain: what arrives on each rank, and how many bytes that takes.
#pragma once

#include <cmath>

#include "examples/labs/05_sequence/one_rank.h"
#include "examples/labs/harness/difference.h"

namespace trireme::labs::sequence {

/// What rank r has of x [T, H, D]: its tokens, or its heads, in the plain order.
inline Tensor tokens_of(const Tensor& x, int rank, int ranks) {
  return contiguous(view::slice(x, 0, x.size(0) / ranks * rank, x.size(0) / ranks));
}
inline Tensor heads_of(const Tensor& x, int rank, int ranks) {
  return contiguous(view::slice(x, 1, x.size(1) / ranks * rank, x.size(1) / ranks));
}

/// Each rank sent `least` bytes; `what`: what needs so many.
inline void expect_bytes(Grading& grading, const Run& run, std::int64_t least, std::string_view what) {
  for (int rank = 0; rank < static_cast<int>(run.ranks.size()); ++rank) {
    const std::int64_t bytes = run.ranks[at(rank)].bytes_sent();
    grading.expect(bytes >= least, "rank {} sent {} bytes; {} needs {}. Ranks know of each other by messages only",
                   rank, bytes, what, least);
    grading.expect(bytes <= least, "rank {} sent {} bytes: more than {} needs, {}", rank, bytes, what, least);
  }
  for (const std::string& left : run.left) grading.expect(left);
}

inline std::int64_t all_to_all_bytes(const Sizes& s) { return s.bytes() / s.ranks * (s.ranks - 1); }

/// One of to_heads and to_tokens.
using Move = Tensor (*)(Rank& rank, const Tensor& x);
using Part = Tensor (*)(const Tensor& x, int rank, int ranks);

inline void check_move(Grading& grading, std::string_view name, Move move, Part from, Part to) {
  for (const int ranks : {2, grading.pick(3, 4)}) {
    const Sizes s = ulysses_sizes(grading, ranks);
    const Tensor x = grading.random({s.length, s.heads, s.width});
    std::vector<Tensor> moved(at(ranks));
    const Run run = run_ranks({.ranks = ranks, .collectives = true},
                              [&](Rank& rank) { moved[at(rank.rank())] = move(rank, from(x, rank.rank(), ranks)); });
    for (int rank = 0; rank < ranks; ++rank)
      grading.expect(difference(fmt::format("{}(x) on rank {} of {}", name, rank, ranks), moved[at(rank)],
                                to(x, rank, ranks), {.tolerance = 0}));
    expect_bytes(grading, run, all_to_all_bytes(s), "an all-to-all");
  }
}

inline void check_ulysses(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, grading.pick(3, 4)}) {
    const Sizes s = ulysses_sizes(grading, ranks);
    const Qkv x = random_qkv(grading, s);
    const Tensor want = OneRank(x, true).out;
    std::vector<Tensor> out(at(ranks));
    const Run run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      const auto own = [&](const Tensor& part) { return tokens_of(part, rank.rank(), ranks); };
      out[at(rank.rank())] = answers.ulysses_attention(rank, each(x, own));
    });
    for (int rank = 0; rank < ranks; ++rank)
      grading.expect(
          difference(fmt::format("output on rank {} of {}", rank, ranks), out[at(rank)], tokens_of(want, rank, ranks)));
    expect_bytes(grading, run, 4 * all_to_all_bytes(s), "four all-to-alls");
    const Timeline timeline = timed(run, equal_links(0, 1e15));
    for (int rank = 0; rank < ranks; ++rank)
      grading.expect(std::abs(timeline.computing(rank) - s.fair_share()) <= 1e-6 * s.fair_share(),
                     "rank {} computed for {:.3f} ms; the scores of its heads take {:.3f}", rank,
                     1e3 * timeline.computing(rank), 1e3 * s.fair_share());
  }
}

inline void check_ulysses_backward(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, grading.pick(3, 4)}) {
    const Sizes s = ulysses_sizes(grading, ranks);
    const Qkv x = random_qkv(grading, s);
    const Tensor dout = grading.random({s.length, s.heads, s.width});
    const Qkv want = OneRank(x, true, dout).gradients;
    std::vector<Qkv> got(at(ranks));
    const Run run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      const auto own = [&](const Tensor& part) { return heads_of(part, rank.rank(), ranks); };
      got[at(rank.rank())] = answers.ulysses_backward(rank, each(x, own), tokens_of(dout, rank.rank(), ranks));
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto expect = [&](std::string_view name, const Tensor& have, const Tensor& whole) {
        grading.expect(difference(fmt::format("gradient of {} on rank {} of {}", name, rank, ranks), have,
                                  tokens_of(whole, rank, ranks)));
      };
      expect("q", got[at(rank)].q, want.q);
      expect("k", got[at(rank)].k, want.k);
      expect("v", got[at(rank)].v, want.v);
    }
    expect_bytes(grading, run, 4 * all_to_all_bytes(s), "four all-to-alls");
  }
}

// ---- the gain of a norm ---------------------------------------------------------------------------------------------

/// One rank: y = rms_norm(x, gain) weight^T, in f64. Of n ranks, each has some rows of weight, and some columns of dy.
inline void check_gain(const Answers& answers, Grading& grading) {
  for (const int ranks : {2, grading.pick(3, 6)}) {
    const std::int64_t length = std::int64_t{ranks} * grading.pick(3, 9);
    const std::int64_t width = std::int64_t{ranks} * grading.pick(2, 4);
    const std::int64_t features = 4;  // of a rank
    const Tensor x = cast(grading.random({length, width}), DType::f64);
    const Tensor weight = cast(grading.random({features * ranks, width}), DType::f64);
    const Tensor dy = cast(grading.random({length, features * ranks}), DType::f64);
    Tensor gain = cast(grading.random({width}), DType::f64);
    require_grad(gain);
    backward(linear(rms_norm(x, gain), weight, {}), dy);
    const Tensor normalized = cast(rms_norm(x, Tensor::ones({width}, DType::f64)), DType::f32);  // [T, D]
    std::vector<Tensor> got(at(ranks));
    const Run run = run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      const std::int64_t first = features * rank.rank();
      const Tensor dh = matmul(slice(dy, 1, first, features), slice(weight, 0, first, features));  // [T, D]
      got[at(rank.rank())] =
          answers.gain_gradient(rank, tokens_of(normalized, rank.rank(), ranks), cast(dh, DType::f32));
    });
    for (int rank = 0; rank < ranks; ++rank)
      grading.expect(
          difference(fmt::format("gradient of gain on rank {} of {}", rank, ranks), got[at(rank)], grad(gain)));
    const std::int64_t scattered = (ranks - 1) * (length / ranks) * width * 4;
    const std::int64_t reduced = 2 * (ranks - 1) * (width / ranks) * 4;
    expect_bytes(grading, run, scattered + reduced, "a sum for each rank's tokens, and one of gradients,");
  }
}

}  // namespace trireme::labs::sequence
