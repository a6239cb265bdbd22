// Attention against f64: causal and not, grouped heads, ragged lengths, padded head dims, queries that see nothing.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/kernels/attention.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace attention_test {
namespace {

struct Case {
  int batch, heads, kv_heads, dim, queries, keys;
  bool causal;
};

template <class T>
void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  const int q_pitch = c.heads * c.dim + 8, kv_pitch = c.kv_heads * c.dim;
  const auto size = [&](int tokens, int pitch) { return static_cast<std::size_t>(c.batch * tokens * pitch); };
  Buffer<T> q(size(c.queries, q_pitch)), k(size(c.keys, kv_pitch)), v(k.size()), out(q.size());
  Buffer<float> lse(static_cast<std::size_t>(c.batch * c.heads * c.queries));
  q.fill_random(1, 2);
  k.fill_random(2, 2);
  v.fill_random(3);
  const float scale = 1 / std::sqrt(static_cast<float>(c.dim));
  attention_forward_sm80<T>({c.batch, c.heads, c.kv_heads, c.dim, c.queries, c.keys, c.causal, scale, q.data(), q_pitch,
                             k.data(), v.data(), kv_pitch, out.data(), q_pitch, lse.data()});
  double worst = 0;
  std::vector<double> p(static_cast<std::size_t>(c.keys));
  for (int b = 0; b < c.batch; ++b)
    for (int h = 0; h < c.heads; ++h)
      for (int i = 0; i < c.queries; ++i) {
        const auto at = [&](int token, int tokens, int pitch, int head, int d) {
          return static_cast<std::size_t>((b * tokens + token) * pitch + head * c.dim + d);
        };
        const int kv = h / (c.heads / c.kv_heads),
                  end = c.causal ? std::min(c.keys, i + c.keys - c.queries + 1) : c.keys;
        double sum = 0;
        for (int j = 0; j < end; ++j) {
          double score = 0;
          for (int d = 0; d < c.dim; ++d)
            score += q.at(at(i, c.queries, q_pitch, h, d)) * k.at(at(j, c.keys, kv_pitch, kv, d));
          sum += p[static_cast<std::size_t>(j)] = std::exp(score * static_cast<double>(scale));
        }
        for (int d = 0; d < c.dim; ++d) {
          double expected = 0;
          for (int j = 0; j < end; ++j)
            expected += p[static_cast<std::size_t>(j)] / sum * v.at(at(j, c.keys, kv_pitch, kv, d));
          keep_largest(worst, std::abs(out.at(at(i, c.queries, q_pitch, h, d)) - expected));
        }
        const double got = lse.at(static_cast<std::size_t>((b * c.heads + h) * c.queries + i));
        if (end <= 0)
          CHECK(got == -INFINITY);
        else
          CHECK(got == doctest::Approx(std::log(sum)).epsilon(1e-5));
      }
  // Probabilities and results are rounded to T once each; values are below 1.
  CHECK(worst < (std::is_same_v<T, bf16> ? 1.0 / 256 : 1.0 / 2048));
}

}  // namespace

TEST_CASE("cuda attention_sm80: causal, grouped, ragged and padded, equals f64") {
  under_schedules([] {
    check<bf16>({1, 1, 1, 64, 64, 64, false});
    check<f16>({2, 4, 2, 64, 70, 70, true});
    check<bf16>({1, 2, 1, 128, 33, 150, true});
    check<f16>({1, 1, 1, 40, 5, 129, false});
    check<bf16>({1, 2, 2, 8, 1, 1, true});
    check<f16>({1, 1, 1, 72, 80, 10, true});  // the first 70 queries see no key
  });
}

TEST_CASE("cuda attention_sm80: shapes it cannot take are refused with the constraint") {
  AttentionForward<bf16> attention{};
  attention.head_dim = 136;
  CHECK(cuda_test::error_of([&] { attention_forward_sm80(attention); }).find("multiple of 8 up to 128") !=
        std::string::npos);
}

}  // namespace attention_test
