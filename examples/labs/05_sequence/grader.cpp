// The grader of lab 5. Outputs and gradients are compared, by position in the sequence, with those of one rank in f64;
// times are counted by examples/labs/harness/clock.h.
// Read next: one_rank.h, ring_checks.h and ulysses_checks.h beside this file.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "examples/labs/05_sequence/ring_checks.h"
#include "examples/labs/05_sequence/ulysses_checks.h"

namespace trireme::labs::sequence {

Partial no_keys(const Tensor& q) {
  const Shape rows = {q.size(0), q.size(1), 1};
  return {Tensor::zeros(q.shape()), Tensor::full(rows, -std::numeric_limits<double>::infinity()), Tensor::zeros(rows)};
}

namespace {

/// One query of one head: writes its row of a Partial. Scores are f64; they refer to the f32 maximum that is returned.
void attend_row(const float* q, const Tensor& k, const Tensor& v, std::int64_t head, std::int64_t visible, float* out,
                float& max, float& sum) {
  const std::int64_t heads = k.size(1), width = k.size(2);
  const auto row_of = [&](const Tensor& x, std::int64_t key) { return x.data<float>() + (key * heads + head) * width; };
  std::vector<double> scores(at(visible)), total(at(width));
  for (std::int64_t key = 0; key < visible; ++key)
    scores[at(key)] = std::inner_product(q, q + width, row_of(k, key), 0.0) / std::sqrt(static_cast<double>(width));
  max = static_cast<float>(*std::ranges::max_element(scores));
  double weights = 0;
  for (std::int64_t key = 0; key < visible; ++key) {
    const double weight = std::exp(scores[at(key)] - double{max});
    weights += weight;
    for (std::size_t d = 0; d < total.size(); ++d) total[d] += weight * double{row_of(v, key)[d]};
  }
  sum = static_cast<float>(weights);
  std::ranges::transform(total, out, [](double x) { return static_cast<float>(x); });
}

}  // namespace

Partial attend(Rank& rank, const Tensor& queries, const Tensor& keys, const Tensor& values, bool causal) {
  const Tensor q = contiguous(queries), k = contiguous(keys), v = contiguous(values);
  require(q.dims() == 3 && k.dims() == 3 && k.shape() == v.shape() && q.size(1) == k.size(1) && q.size(2) == k.size(2),
          "attend", "q is {}, k {}, v {}; expected [Tq, H, D], [Tk, H, D], [Tk, H, D]", q.shape(), k.shape(),
          v.shape());
  require(q.size(0) > 0 && k.size(0) > 0 && (!causal || q.size(0) == k.size(0)), "attend",
          "{} queries and {} keys; expected some of each, and equally many if causal", q.size(0), k.size(0));
  rank.compute(static_cast<double>(q.size(1)) * scores_of(q.size(0), k.size(0), causal) * seconds_per_score,
               causal ? "causal attention" : "attention");
  Partial result = no_keys(q);
  for (std::int64_t row = 0; row < q.size(0) * q.size(1); ++row) {
    const std::int64_t query = row / q.size(1), head = row % q.size(1);
    attend_row(q.data<float>() + row * q.size(2), k, v, head, causal ? query + 1 : k.size(0),
               result.out.data<float>() + row * q.size(2), result.max.data<float>()[row],
               result.sum.data<float>()[row]);
  }
  return result;
}

Qkv attention_gradients(Rank& rank, const Qkv& x, const Tensor& dout) {
  require(dout.shape() == x.q.shape(), "attention_gradients", "dout is {} for q {}; expected equal shapes",
          dout.shape(), x.q.shape());
  rank.compute(2.5 * static_cast<double>(x.q.size(1)) * scores_of(x.q.size(0), x.k.size(0), true) * seconds_per_score,
               "attention's backward");
  const Qkv wide = OneRank(x, true, dout).gradients;
  return {cast(wide.q, DType::f32), cast(wide.k, DType::f32), cast(wide.v, DType::f32)};
}

namespace {

// What is predicted is then measured, without the learner's functions.

std::int64_t measured_bytes(int ranks, const std::function<void(Rank&)>& body) {
  return run_ranks({.ranks = ranks, .collectives = true}, body).ranks[0].bytes_sent();
}

double measured_imbalance(const Sizes& s, const std::function<Chunks(int rank)>& chunks_of) {
  const Run run = run_ranks({.ranks = s.ranks}, [&](Rank& rank) {
    rank.compute(visible(chunks_of(rank.rank()), s.length / (2 * s.ranks)) * seconds_per_score, "attention");
  });
  const Timeline timeline = timed(run, equal_links(0, 1e15));
  double sum = 0;
  for (int rank = 0; rank < s.ranks; ++rank) sum += timeline.computing(rank);
  return timeline.seconds * s.ranks / sum;
}

/// The fewest tokens on a rank with which a ring does not wait for messages. Of one head: more change both sides alike.
double measured_tokens_to_hide(std::int64_t width, double bytes_per_second) {
  const auto waits = [&](std::int64_t tokens) {
    const double step = scores_of(tokens, tokens, false) / 2 * seconds_per_score;
    const Run run = run_ranks({.ranks = 3}, [&](Rank& rank) {
      for (int i = 0; i < 2; ++i) {
        const int message = rank.start([&] {
          rank.send(Tensor::zeros({2, tokens, 1, width}), (rank.rank() + 1) % 3);
          rank.receive((rank.rank() + 2) % 3);
        });
        rank.compute(step, "a step");
        rank.wait(message);
      }
    });
    return timed(run, equal_links(0, bytes_per_second)).seconds > 2.0001 * step;
  };
  std::int64_t few = 1, enough = 1024;
  while (few < enough) {
    const std::int64_t middle = (few + enough) / 2;
    if (waits(middle)) {
      few = middle + 1;
    } else {
      enough = middle;
    }
  }
  return static_cast<double>(enough);
}

void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(3, 8);
  const Sizes s = {ranks, std::int64_t{2} * ranks * grading.pick(2, 9), std::int64_t{ranks} * grading.pick(1, 3),
                   std::int64_t{4} * grading.pick(1, 4)};
  const auto ring_bytes = answers.ring_bytes(ranks, s.length, s.heads, s.width);
  const auto ulysses_bytes = answers.ulysses_bytes(ranks, s.length, s.heads, s.width);
  const double plain = answers.plain_imbalance(ranks, s.length), zigzag = answers.zigzag_imbalance(ranks, s.length);
  const double bytes_per_second = 16 * static_cast<double>(s.width) / (seconds_per_score * 20 * grading.pick(6, 30));
  const double tokens = answers.tokens_to_hide(s.width, bytes_per_second);

  const Shape local = {2, s.local(), s.heads, s.width};  // keys and values
  const std::string length = fmt::format("{} ranks, T = {}", ranks, s.length);
  const std::string given = fmt::format("{}, H = {}, Dh = {}", length, s.heads, s.width);
  grading.predict(
      "bytes that a rank sends in the ring", given, static_cast<double>(ring_bytes),
      static_cast<double>(measured_bytes(ranks, [&](Rank& rank) { rank.all_gather(Tensor::zeros(local)); })));
  const Shape by_rank = {ranks, s.local(), s.heads / ranks, s.width};
  grading.predict("bytes that a rank sends in Ulysses", given, static_cast<double>(ulysses_bytes),
                  static_cast<double>(measured_bytes(ranks, [&](Rank& rank) {
                    for (int i = 0; i < 4; ++i) rank.all_to_all(Tensor::zeros(by_rank));
                  })));
  grading.predict("imbalance of the plain order", length, plain, measured_imbalance(s, [](int rank) {
                    return Chunks{2 * rank, 2 * rank + 1};
                  }));
  grading.predict("imbalance of the zigzag order", length, zigzag, measured_imbalance(s, [&](int rank) {
                    return Chunks{rank, 2 * ranks - 1 - rank};
                  }));
  grading.predict("tokens that hide a message",
                  fmt::format("Dh = {}, {:.4g} bytes per second", s.width, bytes_per_second), tokens,
                  measured_tokens_to_hide(s.width, bytes_per_second), 0.01);
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  grading.check("combined: two parts of the keys", [&] { check_combined(answers, grading); });
  grading.check("chunks_of: equal work", [&] { check_order(answers, grading); });
  grading.check("ring_attention: the outputs", [&] { check_outputs(answers, grading); });
  grading.check("ring_attention: the bytes of a ring", [&] { check_ring_traffic(answers, grading); });
  grading.check("ring_attention: no score twice or in vain", [&] { check_work(answers, grading); });
  grading.check("ring_attention: messages while it computes", [&] { check_overlap(answers, grading); });
  grading.check("to_heads: all tokens of own heads",
                [&] { check_move(grading, "to_heads", answers.to_heads, tokens_of, heads_of); });
  grading.check("to_tokens: all heads of own tokens",
                [&] { check_move(grading, "to_tokens", answers.to_tokens, heads_of, tokens_of); });
  grading.check("ulysses_attention: the outputs", [&] { check_ulysses(answers, grading); });
  grading.check("ulysses_backward: the gradients", [&] { check_ulysses_backward(answers, grading); });
  grading.check("gain_gradient: a sum over all tokens", [&] { check_gain(answers, grading); });
}

}  // namespace trireme::labs::sequence
