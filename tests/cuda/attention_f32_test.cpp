// Attention in f32, forward and backward, against the formulas in f64 with the whole matrix of probabilities: masks,
// documents, grouped heads, ragged lengths, any head dims and pitches, queries that see nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cuda/kernels/attention.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::keep_largest;
using cuda_test::under_schedules;

namespace attention_f32_test {
namespace {

struct Case {
  int batch, heads, kv_heads, dim, queries, keys;
  bool causal;
  bool documents = false, with_dlse = false;
  int gap = 0;  ///< unused values between tokens
};

/// [batch, tokens, heads, dim] with `gap` unused values after every token.
struct Layout {
  int tokens, heads, dim, gap;
  int pitch() const { return heads * dim + gap; }
  std::size_t at(int b, int token, int head, int d = 0) const {
    return static_cast<std::size_t>((b * tokens + token) * pitch() + head * dim + d);
  }
  std::size_t size(int batch) const { return static_cast<std::size_t>(batch * tokens * pitch()); }
};

struct Problem {
  Case c;
  Layout ql{c.queries, c.heads, c.dim, c.gap}, kl{c.keys, c.kv_heads, c.dim, 2 * c.gap};
  Buffer<float> q, k, v, out, dout, dq, dk, dv, lse, dlse, delta;
  Buffer<std::int32_t> first_key;

  explicit Problem(const Case& which)
      : c(which),
        q(ql.size(c.batch)),
        k(kl.size(c.batch)),
        v(k.size()),
        out(q.size()),
        dout(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        lse(static_cast<std::size_t>(c.batch * c.heads * c.queries)),
        dlse(lse.size()),
        delta(lse.size()),
        first_key(static_cast<std::size_t>(c.batch * c.queries)) {
    q.fill_random(1, 2);
    k.fill_random(2, 2);
    v.fill_random(3);
    dout.fill_random(4);
    dlse.fill_random(5);
    for (Buffer<float>* result : {&out, &dq, &dk, &dv}) result->fill(7);  // must be overwritten
    for (int i = 0; i < c.batch * c.queries; ++i)
      first_key.set(static_cast<std::size_t>(i), i % 17 == 5   ? std::numeric_limits<std::int32_t>::max()
                                                 : i % 17 == 3 ? std::numeric_limits<std::int32_t>::min()
                                                               : (i * 31 + i / 40) % (c.keys + 10) - 3);
  }
  std::size_t row(int b, int h, int i) const { return static_cast<std::size_t>((b * c.heads + h) * c.queries + i); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(c.dim)); }
  AttentionForward<float> forward() {
    return {.batch = c.batch,
            .heads = c.heads,
            .kv_heads = c.kv_heads,
            .head_dim = c.dim,
            .queries = c.queries,
            .keys = c.keys,
            .causal = c.causal,
            .scale = static_cast<float>(scale()),
            .q = q.data(),
            .q_pitch = ql.pitch(),
            .k = k.data(),
            .v = v.data(),
            .kv_pitch = kl.pitch(),
            .out = out.data(),
            .out_pitch = ql.pitch(),
            .lse = lse.data(),
            .first_key = c.documents ? first_key.data() : nullptr};
  }
  AttentionBackward<float> backward() {
    return {.forward = forward(),
            .dout = dout.data(),
            .dout_pitch = ql.pitch(),
            .dlse = c.with_dlse ? dlse.data() : nullptr,
            .dq = dq.data(),
            .dq_pitch = ql.pitch(),
            .dk = dk.data(),
            .dv = dv.data(),
            .dkv_pitch = kl.pitch(),
            .delta = delta.data(),
            .first_tile = nullptr};
  }
  bool sees(int b, int i, int j) const {
    if (c.causal && j > i + c.keys - c.queries) return false;
    return !c.documents || j >= first_key.value(static_cast<std::size_t>(b * c.queries + i));
  }
};

double dot(const Problem& x, const Buffer<float>& a, std::size_t a_at, const Buffer<float>& b, std::size_t b_at) {
  double sum = 0;
  for (int d = 0; d < x.c.dim; ++d)
    sum += a.at(a_at + static_cast<std::size_t>(d)) * b.at(b_at + static_cast<std::size_t>(d));
  return sum;
}

struct Reference {
  std::vector<double> out, lse, dq, dk, dv;

  explicit Reference(const Problem& x)
      : out(x.q.size()), lse(x.lse.size(), -INFINITY), dq(x.q.size()), dk(x.k.size()), dv(x.k.size()) {
    for (int b = 0; b < x.c.batch; ++b)
      for (int h = 0; h < x.c.heads; ++h)
        for (int i = 0; i < x.c.queries; ++i) add_row(x, b, h, i);
  }
  void add_row(const Problem& x, int b, int h, int i) {
    const Case& c = x.c;
    const int kv = h / (c.heads / c.kv_heads);
    const std::size_t query = x.ql.at(b, i, h);
    std::vector<double> p(static_cast<std::size_t>(c.keys));
    double sum = 0;
    for (int j = 0; j < c.keys; ++j)
      if (x.sees(b, i, j))
        sum += p[static_cast<std::size_t>(j)] = std::exp(x.scale() * dot(x, x.q, query, x.k, x.kl.at(b, j, kv)));
    if (sum == 0) return;
    lse[x.row(b, h, i)] = std::log(sum);
    double delta = c.with_dlse ? -x.dlse.at(x.row(b, h, i)) : 0;  // rowsum(dout out) = sum of p dp
    for (int j = 0; j < c.keys; ++j) {
      double& weight = p[static_cast<std::size_t>(j)];
      weight /= sum;
      delta += weight * dot(x, x.dout, query, x.v, x.kl.at(b, j, kv));
    }
    for (int j = 0; j < c.keys; ++j) {
      const double weight = p[static_cast<std::size_t>(j)];
      const std::size_t key = x.kl.at(b, j, kv);
      const double ds = weight * (dot(x, x.dout, query, x.v, key) - delta) * x.scale();
      for (std::size_t d = 0; d < static_cast<std::size_t>(c.dim); ++d) {
        out[query + d] += weight * x.v.at(key + d);
        dv[key + d] += weight * x.dout.at(query + d);
        dq[query + d] += ds * x.k.at(key + d);
        dk[key + d] += ds * x.q.at(query + d);
      }
    }
  }
};

/// The largest error; infinite for NaN. Gaps between tokens must still hold 7.
double worst(const Buffer<float>& got, const std::vector<double>& expected, const Layout& layout) {
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool inside = static_cast<int>(i) % layout.pitch() < layout.heads * layout.dim;
    keep_largest(largest, std::abs(got.at(i) - (inside ? expected[i] : 7)));
  }
  return largest;
}

void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  Problem x(c);
  attention_forward_f32(x.forward());
  attention_backward_f32(x.backward());
  const Reference expected(x);
  for (std::size_t i = 0; i < x.lse.size(); ++i) {
    if (std::isinf(expected.lse[i]))
      CHECK(x.lse.at(i) == expected.lse[i]);
    else
      CHECK(x.lse.at(i) == doctest::Approx(expected.lse[i]).epsilon(2e-6));
  }
  // Scores reach 40, so each is rounded by 4e-6 at most, and the probabilities inherit that error.
  CHECK(worst(x.out, expected.out, x.ql) < 5e-6);
  CHECK(worst(x.dq, expected.dq, x.ql) < 2e-5);
  CHECK(worst(x.dk, expected.dk, x.kl) < 4e-5);
  CHECK(worst(x.dv, expected.dv, x.kl) < 2e-5);
}

}  // namespace

TEST_CASE("cuda attention_f32: masks, grouped heads, ragged lengths and any head dim, equal f64") {
  under_schedules([] {
    check({1, 1, 1, 64, 64, 64, false});
    check({2, 4, 2, 32, 70, 70, true});
    check({1, 2, 1, 128, 33, 90, true});
    check({1, 1, 1, 7, 5, 129, false, false, false, 3});
    check({1, 2, 2, 4, 1, 1, true});
    check({1, 1, 1, 72, 80, 10, true});  // the first 70 queries see no key
  });
}

TEST_CASE("cuda attention_f32: documents, the gradient of the log-sum-exp, queries that see nothing") {
  under_schedules([] {
    check({2, 4, 2, 16, 70, 70, true, true, true});
    check({1, 2, 1, 40, 33, 100, false, true, true, 2});
  });
}

TEST_CASE("cuda attention_f32: the same bits under every schedule") {
  if (cuda_test::slow_build()) return;  // the kernels of the cases above, under one schedule
  const Case c{1, 2, 1, 24, 70, 50, false, true, true};
  Problem first(c);
  attention_forward_f32(first.forward());
  attention_backward_f32(first.backward());
  under_schedules([&] {
    Problem again(c);
    attention_forward_f32(again.forward());
    attention_backward_f32(again.backward());
    CHECK(same_bits(first.out, again.out));
    CHECK(same_bits(first.dq, again.dq));
    CHECK(same_bits(first.dk, again.dk));
    CHECK(same_bits(first.dv, again.dv));
  });
}

TEST_CASE("cuda attention_f32: no queries leave keys without a gradient, no keys leave queries without one") {
  Problem x({1, 1, 1, 16, 5, 7, false});
  AttentionBackward<float> call = x.backward();
  call.forward.queries = 0;
  attention_backward_f32(call);
  CHECK(worst(x.dk, std::vector<double>(x.dk.size()), x.kl) == 0);
  CHECK(worst(x.dv, std::vector<double>(x.dv.size()), x.kl) == 0);
  call = x.backward();
  call.forward.keys = 0;
  attention_forward_f32(call.forward);
  attention_backward_f32(call);
  CHECK(worst(x.out, std::vector<double>(x.out.size()), x.ql) == 0);
  CHECK(worst(x.dq, std::vector<double>(x.dq.size()), x.ql) == 0);
}

TEST_CASE("cuda attention_f32: shapes it cannot take are refused with the constraint") {
  AttentionForward<float> call{};
  call.head_dim = 129;
  CHECK(cuda_test::error_of([&] { attention_forward_f32(call); }).find("expected 1 to 128") != std::string::npos);
  call.head_dim = 64;
  call.heads = 4;
  call.kv_heads = 3;
  CHECK(cuda_test::error_of([&] { attention_forward_f32(call); }).find("expected a divisor") != std::string::npos);
}

}  // namespace attention_f32_test
