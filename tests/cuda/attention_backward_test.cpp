// Attention's gradients against f64, for both masks: causal and not, grouped heads, ragged lengths, padded head dims,
// wide pitches, documents, queries that see nothing, the gradient of the log-sum-exp, keys given in two parts.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cuda/kernels/attention.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::under_schedules;

namespace {

enum class Documents : std::uint8_t { none, packed, scattered };

struct Case {
  int batch, heads, kv_heads, dim, queries, keys;
  bool causal;
  Documents documents = Documents::none;
  bool with_dlse = false;
  int gap = 8;  ///< unused values between tokens
};

/// [batch, tokens, heads, dim] with `gap` unused values after every token.
struct Layout {
  int tokens, heads, dim, gap;
  int pitch() const { return heads * dim + gap; }
  std::size_t at(int b, int token, int head, int d) const {
    return static_cast<std::size_t>((b * tokens + token) * pitch() + head * dim + d);
  }
  std::size_t size(int batch) const { return static_cast<std::size_t>(batch * tokens * pitch()); }
};

/// Everything one call reads and writes.
template <class T>
struct Problem {
  Case c;
  Layout q_layout{c.queries, c.heads, c.dim, c.gap}, kv_layout{c.keys, c.kv_heads, c.dim, 2 * c.gap};
  Buffer<T> q, k, v, out, dout, dq, dk, dv;
  Buffer<float> lse, dlse, delta;
  Buffer<std::int32_t> first_key, first_tile;

  explicit Problem(const Case& which)
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
    for (auto* gradient : {&dq, &dk, &dv}) gradient->fill(7);  // must be overwritten
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
  /// Any number: in no order, negative, and beyond the last key.
  int scattered(int b, int i) const {
    if (i % 17 == 3) return std::numeric_limits<std::int32_t>::min();
    if (i % 17 == 5) return std::numeric_limits<std::int32_t>::max();
    return i / 64 % 2 == 0 ? c.keys - 10 - (i * 7 + b) % 40 : (i * 31 + b) % (c.keys + 10);
  }

  AttentionForward<T> forward() {
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
  AttentionBackward<T> backward() {
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
struct Reference {
  std::vector<double> out, lse, dq, dk, dv;

  template <class T>
  explicit Reference(const Problem<T>& x)
      : out(x.q.size()), lse(x.row_count(), -INFINITY), dq(x.q.size()), dk(x.k.size()), dv(x.k.size()) {
    for (int b = 0; b < x.c.batch; ++b)
      for (int h = 0; h < x.c.heads; ++h)
        for (int i = 0; i < x.c.queries; ++i) add_row(x, b, h, i);
  }

  template <class T>
  void add_row(const Problem<T>& x, int b, int h, int i) {
    const Case& c = x.c;
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

/// The largest difference, over 1 + the largest value expected; NaN counts as enormous. Between tokens nothing may
/// change: `untouched` is there.
template <class T>
double worst(const Buffer<T>& got, const std::vector<double>& expected, const Layout& layout, double untouched) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool between = static_cast<int>(i) % layout.pitch() >= layout.heads * layout.dim;
    const double e = std::abs(got.at(i) - (between ? untouched : expected[i]));
    error = std::isnan(e) ? 1e9 : std::max(error, e);
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / (1 + largest);
}

template <class T>
void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(static_cast<int>(c.documents));
  Problem<T> x(c);
  x.out.fill(7);
  attention_forward_sm80(x.forward());
  attention_backward_sm80(x.backward());
  const Reference expected(x);
  for (std::size_t i = 0; i < x.lse.size(); ++i) {
    if (expected.lse[i] == -INFINITY)
      CHECK(x.lse.at(i) == -INFINITY);
    else
      CHECK(std::abs(x.lse.at(i) - expected.lse[i]) < 1e-5 * (1 + std::abs(expected.lse[i])));
  }
  // out, p, ds and the results are rounded to T once each; rounding errs by half of `step` or less, relatively.
  const double step = std::is_same_v<T, bf16> ? 1.0 / 128 : 1.0 / 1024;
  CHECK(worst(x.out, expected.out, x.q_layout, 7) < step / 2);
  CHECK(worst(x.dq, expected.dq, x.q_layout, 7) < step);
  CHECK(worst(x.dk, expected.dk, x.kv_layout, 7) < step);
  CHECK(worst(x.dv, expected.dv, x.kv_layout, 7) < step);
}

template <class T>
bool same_bits(const Buffer<T>& a, const Buffer<T>& b) {
  return std::memcmp(a.values().data(), b.values().data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE("cuda attention_backward_sm80: causal, grouped, ragged and padded, equals f64") {
  under_schedules([] {
    check<bf16>({1, 1, 1, 64, 64, 64, false});
    check<f16>({2, 4, 2, 64, 70, 70, true});
    check<bf16>({1, 2, 1, 128, 33, 150, true});
    check<f16>({1, 1, 1, 40, 5, 129, false, Documents::none, false, 0});
    check<bf16>({1, 2, 2, 8, 1, 1, true});
    check<f16>({1, 3, 1, 72, 80, 10, true});  // the first 70 queries see no key
    check<bf16>({1, 2, 2, 128, 129, 65, false, Documents::none, false, 24});
  });
}

TEST_CASE("cuda attention_backward_sm80: the gradient of the log-sum-exp") {
  under_schedules([] {
    check<f16>({1, 2, 1, 64, 70, 40, false, Documents::none, true});
    check<f16>({2, 2, 2, 128, 33, 70, true, Documents::none, true});
  });
}

TEST_CASE("cuda attention_sm80 and its backward: documents in one sequence equal f64") {
  under_schedules([] {
    check<bf16>({2, 2, 1, 64, 260, 260, true, Documents::packed});
    check<f16>({1, 1, 1, 128, 190, 260, true, Documents::packed});
    check<f16>({2, 1, 1, 16, 150, 140, true, Documents::scattered});
    check<bf16>({1, 2, 1, 128, 140, 200, false, Documents::scattered, true});
  });
}

TEST_CASE("cuda attention_sm80 and its backward: tiles that no document needs are not read") {
  // Two documents of two tiles each: with one's inputs NaN, the other's results are unharmed.
  for (const int dim : {64, 128})
    for (const int spoiled : {0, 128}) {
      CAPTURE(dim);
      CAPTURE(spoiled);
      Problem<bf16> x({1, 1, 1, dim, 256, 256, true, Documents::packed});
      for (int i = 0; i < 256; ++i) x.first_key.set(i, i / 128 * 128);
      const Reference expected(x);
      const auto spoil = [&](Buffer<bf16>& values, const Layout& layout) {
        for (int i = spoiled; i < spoiled + 128; ++i) values.set(layout.at(0, i, 0, 0), bf16(NAN));
      };
      spoil(x.k, x.kv_layout);
      spoil(x.v, x.kv_layout);
      attention_forward_sm80(x.forward());
      for (auto* values : {&x.q, &x.dout, &x.out}) spoil(*values, x.q_layout);
      attention_backward_sm80(x.backward());
      double error = 0;
      for (int i = 128 - spoiled; i < 256 - spoiled; ++i)
        for (int d = 0; d < dim; ++d) {
          const std::size_t at_q = x.q_layout.at(0, i, 0, d), at_k = x.kv_layout.at(0, i, 0, d);
          for (const double e : {x.out.at(at_q) - expected.out[at_q], x.dq.at(at_q) - expected.dq[at_q],
                                 x.dk.at(at_k) - expected.dk[at_k], x.dv.at(at_k) - expected.dv[at_k]})
            error = std::isnan(e) ? 1e9 : std::max(error, std::abs(e));
        }
      CHECK(error < 1.0 / 32);  // gradients up to about 2, in bf16
    }
}

TEST_CASE("cuda attention_backward_sm80: keys in two parts, with out and lse over both, sum to the whole") {
  Problem<f16> x({1, 2, 1, 64, 70, 130, false});
  attention_forward_sm80(x.forward());
  const Reference expected(x);
  std::vector<double> dq(x.dq.size());
  for (const int part : {0, 1}) {
    AttentionBackward<f16> call = x.backward();
    const int begin = part * 50, end = part == 0 ? 50 : 130, offset = begin * x.kv_layout.pitch();
    call.forward.keys = end - begin;
    call.forward.k += offset;
    call.forward.v += offset;
    call.dk += offset;
    call.dv += offset;
    attention_backward_sm80(call);
    for (std::size_t i = 0; i < dq.size(); ++i) dq[i] += x.dq.at(i);
  }
  double error = 0;
  for (int i = 0; i < x.c.queries; ++i)
    for (int h = 0; h < x.c.heads; ++h)
      for (int d = 0; d < x.c.dim; ++d) {
        const std::size_t at = x.q_layout.at(0, i, h, d);
        error = std::max(error, std::abs(dq[at] - expected.dq[at]));
      }
  CHECK(error < 1.0 / 512);
  CHECK(worst(x.dk, expected.dk, x.kv_layout, 7) < 1.0 / 1024);
  CHECK(worst(x.dv, expected.dv, x.kv_layout, 7) < 1.0 / 1024);
}

TEST_CASE("cuda attention_backward_sm80: the same bits under every schedule") {
  const Case c{2, 4, 1, 64, 130, 100, true, Documents::packed, true};
  Problem<bf16> first(c);
  attention_forward_sm80(first.forward());
  attention_backward_sm80(first.backward());
  under_schedules([&] {
    Problem<bf16> again(c);
    attention_forward_sm80(again.forward());
    attention_backward_sm80(again.backward());
    CHECK(same_bits(first.dq, again.dq));
    CHECK(same_bits(first.dk, again.dk));
    CHECK(same_bits(first.dv, again.dv));
  });
}

TEST_CASE("cuda attention_backward_sm80: no queries leave keys without a gradient, no keys leave queries without one") {
  Problem<bf16> x({1, 1, 1, 64, 5, 7, false});
  AttentionBackward<bf16> call = x.backward();
  call.forward.queries = 0;
  attention_backward_sm80(call);
  CHECK(worst(x.dk, std::vector<double>(x.dk.size()), x.kv_layout, 7) == 0);
  CHECK(worst(x.dv, std::vector<double>(x.dv.size()), x.kv_layout, 7) == 0);
  call = x.backward();
  call.forward.keys = 0;
  attention_forward_sm80(call.forward);
  attention_backward_sm80(call);
  CHECK(worst(x.dq, std::vector<double>(x.dq.size()), x.q_layout, 7) == 0);
}

TEST_CASE("cuda attention_backward_sm80: calls it cannot take are refused with the constraint") {
  Problem<bf16> x({1, 1, 1, 64, 5, 7, false, Documents::packed});
  const auto refused = [&](auto&& spoil, const char* reason) {
    AttentionBackward<bf16> call = x.backward();
    spoil(call);
    const std::string error = cuda_test::error_of([&] { attention_backward_sm80(call); });
    CAPTURE(error);
    CHECK(error.find(reason) != std::string::npos);
  };
  refused([](auto& call) { call.forward.head_dim = 136; }, "multiple of 8 up to 128");
  refused([](auto& call) { call.forward.kv_heads = 3; }, "expected a divisor");
  refused([](auto& call) { call.dk += 1; }, "multiples of 16 bytes");
  refused([](auto& call) { call.dout_pitch = 65; }, "multiples of 8 elements");
  refused([](auto& call) { call.first_tile = nullptr; }, "scratch first_tile");
}
