// Attention problems and their results in f64, for the tests of attention: causal and not, grouped heads,
// ragged lengths, padded head dims, wide pitches, documents, queries that see nothing, the gradient of the log-sum-exp.
// Read next: tests/cuda/attention_backward_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "cuda/kernels/attention.h"
#include "tests/cuda/support.h"

namespace cuda_test {

enum class Documents : std::uint8_t { none, packed, scattered };

struct AttentionCase {
  int batch, heads, kv_heads, dim, queries, keys;
  bool causal;
  Documents documents = Documents::none;
  bool with_dlse = false;
  int gap = 8;  ///< unused values between tokens
};

/// [batch, tokens, heads, dim] with `gap` unused values after every token.
struct HeadsLayout {
  int tokens, heads, dim, gap;
  int pitch() const { return heads * dim + gap; }
  std::size_t at(int b, int token, int head, int d) const {
    return static_cast<std::size_t>((b * tokens + token) * pitch() + head * dim + d);
  }
  std::size_t size(int batch) const { return static_cast<std::size_t>(batch * tokens * pitch()); }
};

/// Everything one call reads and writes.
template <class T>
struct AttentionProblem {
  AttentionCase c;
  HeadsLayout q_layout{c.queries, c.heads, c.dim, c.gap}, kv_layout{c.keys, c.kv_heads, c.dim, 2 * c.gap};
  Buffer<T> q, k, v, out, dout, dq, dk, dv;
  Buffer<float> lse, dlse, delta;
  Buffer<std::int32_t> first_key, first_tile;

  explicit AttentionProblem(const AttentionCase& which)
      : c(which),
        q(q_layout.size(c.batch)),
        k(kv_layout.size(c.batch)),
        v(k.size()),
        out(q.size()),
        dout(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        lse(row_count()),
        dlse(row_count()),
        delta(row_count()),
        first_key(static_cast<std::size_t>(c.batch * c.queries)),
        first_tile(static_cast<std::size_t>(c.batch * ((c.queries + 63) / 64))) {
    q.fill_random(1, 2);
    k.fill_random(2, 2);
    v.fill_random(3);
    dout.fill_random(4);
    dlse.fill_random(5);
    for (auto* result : {&out, &dq, &dk, &dv}) result->fill(7);  // must be overwritten
    for (int b = 0; b < c.batch; ++b)
      for (int i = 0; i < c.queries; ++i)
        first_key.set(b * c.queries + i, c.documents == Documents::packed ? packed(b, i) : scattered(b, i));
  }
  std::size_t row_count() const { return static_cast<std::size_t>(c.batch * c.heads * c.queries); }
  std::size_t row(int b, int h, int i) const { return static_cast<std::size_t>((b * c.heads + h) * c.queries + i); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(c.dim)); }

  /// Documents of 50, 130, 1, 70, 50, ... tokens, shifted from sequence to sequence.
  int packed(int b, int i) const {
    const int position = i + c.keys - c.queries + 20 * b;
    int start = 0;
    for (int n = 0;; ++n) {
      constexpr int lengths[] = {50, 130, 1, 70};
      const int next = start + lengths[n % 4];
      if (next > position) return start - 20 * b;
      start = next;
    }
  }
  /// Arbitrary numbers: in no order, negative, and beyond the last key.
  int scattered(int b, int i) const {
    if (i % 17 == 3) return std::numeric_limits<std::int32_t>::min();
    if (i % 17 == 5) return std::numeric_limits<std::int32_t>::max();
    return i / 64 % 2 == 0 ? c.keys - 10 - (i * 7 + b) % 40 : (i * 31 + b) % (c.keys + 10);
  }

  trireme::cuda::AttentionForward<T> forward() {
    return {c.batch,
            c.heads,
            c.kv_heads,
            c.dim,
            c.queries,
            c.keys,
            c.causal,
            scale(),
            q.data(),
            q_layout.pitch(),
            k.data(),
            v.data(),
            kv_layout.pitch(),
            out.data(),
            q_layout.pitch(),
            lse.data(),
            c.documents == Documents::none ? nullptr : first_key.data()};
  }
  trireme::cuda::AttentionBackward<T> backward() {
    return {forward(),
            dout.data(),
            q_layout.pitch(),
            c.with_dlse ? dlse.data() : nullptr,
            dq.data(),
            q_layout.pitch(),
            dk.data(),
            dv.data(),
            kv_layout.pitch(),
            delta.data(),
            c.documents == Documents::none ? nullptr : first_tile.data()};
  }
  bool sees(int b, int i, int j) const {
    if (c.causal && j > i + c.keys - c.queries) return false;
    return c.documents == Documents::none || j >= first_key.value(b * c.queries + i);
  }
};

/// Everything in f64, by the formulas with the whole matrix of probabilities.
struct AttentionReference {
  std::vector<double> out, lse, dq, dk, dv;

  template <class T>
  explicit AttentionReference(const AttentionProblem<T>& x)
      : out(x.q.size()), lse(x.row_count(), -INFINITY), dq(x.q.size()), dk(x.k.size()), dv(x.k.size()) {
    for (int b = 0; b < x.c.batch; ++b)
      for (int h = 0; h < x.c.heads; ++h)
        for (int i = 0; i < x.c.queries; ++i) add_row(x, b, h, i);
  }

  template <class T>
  void add_row(const AttentionProblem<T>& x, int b, int h, int i) {
    const AttentionCase& c = x.c;
    const int kv = h / (c.heads / c.kv_heads);
    const auto scale = static_cast<double>(x.scale());
    const auto keys = static_cast<std::size_t>(c.keys);
    std::vector<double> p(keys), dp(keys);
    double sum = 0;
    for (int j = 0; j < c.keys; ++j) {
      if (!x.sees(b, i, j)) continue;
      double score = 0, gradient = 0;
      for (int d = 0; d < c.dim; ++d) {
        score += x.q.at(x.q_layout.at(b, i, h, d)) * x.k.at(x.kv_layout.at(b, j, kv, d));
        gradient += x.dout.at(x.q_layout.at(b, i, h, d)) * x.v.at(x.kv_layout.at(b, j, kv, d));
      }
      sum += p[static_cast<std::size_t>(j)] = std::exp(score * scale);
      dp[static_cast<std::size_t>(j)] = gradient;
    }
    if (sum == 0) return;
    lse[x.row(b, h, i)] = std::log(sum);
    double mean = 0;  // of dp: the gradient through the softmax's denominator
    for (std::size_t j = 0; j < keys; ++j) mean += (p[j] /= sum) * dp[j];
    const double dlse = c.with_dlse ? x.dlse.at(x.row(b, h, i)) : 0;
    for (int j = 0; j < c.keys; ++j) {
      const double weight = p[static_cast<std::size_t>(j)];
      const double ds = weight * (dp[static_cast<std::size_t>(j)] - mean + dlse) * scale;
      for (int d = 0; d < c.dim; ++d) {
        const std::size_t at_q = x.q_layout.at(b, i, h, d), at_k = x.kv_layout.at(b, j, kv, d);
        out[at_q] += weight * x.v.at(at_k);
        dq[at_q] += ds * x.k.at(at_k);
        dk[at_k] += ds * x.q.at(at_q);
        dv[at_k] += weight * x.dout.at(at_q);
      }
    }
  }
};

/// The largest difference; infinite for NaN. Between tokens the values must still be `untouched`.
template <class T>
double largest_error(const Buffer<T>& got, const std::vector<double>& expected, const HeadsLayout& layout,
                     double untouched) {
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool between = static_cast<int>(i) % layout.pitch() >= layout.heads * layout.dim;
    keep_largest(error, std::abs(got.at(i) - (between ? untouched : expected[i])));
  }
  return error;
}

/// The same, divided by 1 + the largest expected value.
template <class T>
double worst(const Buffer<T>& got, const std::vector<double>& expected, const HeadsLayout& layout, double untouched) {
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  return largest_error(got, expected, layout, untouched) / (1 + largest);
}

/// Checks out and lse of a forward kernel. out and the softmax weights are rounded to T once each.
template <class T>
void check_forward(const AttentionProblem<T>& x, const AttentionReference& expected) {
  for (std::size_t i = 0; i < x.lse.size(); ++i) {
    if (expected.lse[i] == -INFINITY)
      CHECK(x.lse.at(i) == -INFINITY);
    else
      CHECK(std::abs(x.lse.at(i) - expected.lse[i]) < 1e-5 * (1 + std::abs(expected.lse[i])));
  }
  const double step = std::is_same_v<T, trireme::bf16> ? 1.0 / 128 : 1.0 / 1024;
  CHECK(worst(x.out, expected.out, x.q_layout, 7) < step / 2);
}

/// Checks the gradients. p, ds and the results are rounded to T once each, with a relative error of at most step / 2.
template <class T>
void check_backward(const AttentionProblem<T>& x, const AttentionReference& expected) {
  const double step = std::is_same_v<T, trireme::bf16> ? 1.0 / 128 : 1.0 / 1024;
  CHECK(worst(x.dq, expected.dq, x.q_layout, 7) < step);
  CHECK(worst(x.dk, expected.dk, x.kv_layout, 7) < step);
  CHECK(worst(x.dv, expected.dv, x.kv_layout, 7) < step);
}

/// Checks rows [begin, end) of all results of x, which has one sequence and one head.
template <class T>
void check_rows(const AttentionProblem<T>& x, const AttentionReference& expected, int begin, int end) {
  double error = 0;
  for (int i = begin; i < end; ++i)
    for (int d = 0; d < x.c.dim; ++d) {
      const std::size_t at_q = x.q_layout.at(0, i, 0, d), at_k = x.kv_layout.at(0, i, 0, d);
      for (const double e : {x.out.at(at_q) - expected.out[at_q], x.dq.at(at_q) - expected.dq[at_q],
                             x.dk.at(at_k) - expected.dk[at_k], x.dv.at(at_k) - expected.dv[at_k]})
        keep_largest(error, std::abs(e));
    }
  CHECK(error < 1.0 / 32);  // gradients up to about 2, in bf16
}

/// Makes the first number of rows [begin, end) NaN.
template <class T>
void spoil(Buffer<T>& values, const HeadsLayout& layout, int begin, int end) {
  for (int i = begin; i < end; ++i) values.set(layout.at(0, i, 0, 0), T(NAN));
}

/// Backward for the keys in two parts, with out and lse over both: the parts' gradients sum to the whole.
template <class Forward, class Backward>
void check_keys_in_parts(const Forward& forward, const Backward& backward) {
  using trireme::f16;
  AttentionProblem<f16> x({1, 2, 1, 64, 70, 130, false});
  forward(x.forward());
  const AttentionReference expected(x);
  std::vector<double> dq(x.dq.size());
  for (const int part : {0, 1}) {
    trireme::cuda::AttentionBackward<f16> call = x.backward();
    const int begin = part * 50, end = part == 0 ? 50 : 130, offset = begin * x.kv_layout.pitch();
    call.forward.keys = end - begin;
    for (const f16** values : {&call.forward.k, &call.forward.v}) *values += offset;
    for (f16** values : {&call.dk, &call.dv}) *values += offset;
    backward(call);
    for (std::size_t i = 0; i < dq.size(); ++i) dq[i] += x.dq.at(i);
  }
  double error = 0;
  for (int i = 0; i < x.c.queries; ++i)
    for (int h = 0; h < x.c.heads; ++h)
      for (int d = 0; d < x.c.dim; ++d) {
        const std::size_t at = x.q_layout.at(0, i, h, d);
        keep_largest(error, std::abs(dq[at] - expected.dq[at]));
      }
  CHECK(error < 1.0 / 512);
  CHECK(worst(x.dk, expected.dk, x.kv_layout, 7) < 1.0 / 1024);
  CHECK(worst(x.dv, expected.dv, x.kv_layout, 7) < 1.0 / 1024);
}

/// All results have the same bits under every schedule. Slow builds have one schedule, and leave this out.
template <class T, class Forward, class Backward>
void check_same_bits(const AttentionCase& c, const Forward& forward, const Backward& backward) {
  if (slow_build()) return;
  AttentionProblem<T> first(c);
  forward(first.forward());
  backward(first.backward());
  under_schedules([&] {
    AttentionProblem<T> again(c);
    forward(again.forward());
    backward(again.backward());
    CHECK(same_bits(first.lse, again.lse));
    for (const auto result :
         {&AttentionProblem<T>::out, &AttentionProblem<T>::dq, &AttentionProblem<T>::dk, &AttentionProblem<T>::dv})
      CHECK(same_bits(first.*result, again.*result));
  });
}

/// Without queries, keys have no gradient; without keys, queries have none, and out is 0.
template <class T, class Forward, class Backward>
void check_nothing_to_see(const AttentionCase& c, const Forward& forward, const Backward& backward) {
  AttentionProblem<T> x(c);
  auto call = x.backward();
  call.forward.queries = 0;
  forward(call.forward);
  CHECK(x.out.at(0) == 7);
  backward(call);
  CHECK(worst(x.dk, std::vector<double>(x.dk.size()), x.kv_layout, 7) == 0);
  CHECK(worst(x.dv, std::vector<double>(x.dv.size()), x.kv_layout, 7) == 0);
  call = x.backward();
  call.forward.keys = 0;
  forward(call.forward);
  CHECK(x.lse.at(0) == -INFINITY);
  backward(call);
  CHECK(worst(x.out, std::vector<double>(x.out.size()), x.q_layout, 7) == 0);
  CHECK(worst(x.dq, std::vector<double>(x.dq.size()), x.q_layout, 7) == 0);
}

}  // namespace cuda_test
