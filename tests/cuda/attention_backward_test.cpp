// Attention's gradients against f64, for both masks: causal and not, grouped heads, ragged lengths, padded head dims,
// wide pitches, documents, queries that see nothing, the gradient of the log-sum-exp, keys given in two parts.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/attention_cases.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::Documents;
using cuda_test::keep_largest;
using cuda_test::same_bits;
using cuda_test::under_schedules;
using cuda_test::worst;
using Case = cuda_test::AttentionCase;
using Layout = cuda_test::HeadsLayout;
using Reference = cuda_test::AttentionReference;
template <class T>
using Problem = cuda_test::AttentionProblem<T>;

namespace attention_backward_test {
namespace {

template <class T>
void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(static_cast<int>(c.documents));
  Problem<T> x(c);
  attention_forward_sm80(x.forward());
  attention_backward_sm80(x.backward());
  const Reference expected(x);
  check_forward(x, expected);
  check_backward(x, expected);
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
  // Two documents of two tiles each. The inputs of one are NaN; the results of the other must be right.
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
            keep_largest(error, std::abs(e));
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
        keep_largest(error, std::abs(dq[at] - expected.dq[at]));
      }
  CHECK(error < 1.0 / 512);
  CHECK(worst(x.dk, expected.dk, x.kv_layout, 7) < 1.0 / 1024);
  CHECK(worst(x.dv, expected.dv, x.kv_layout, 7) < 1.0 / 1024);
}

TEST_CASE("cuda attention_backward_sm80: the same bits under every schedule") {
  if (cuda_test::slow_build()) return;  // the kernels of the cases above, under one schedule
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

}  // namespace attention_backward_test
