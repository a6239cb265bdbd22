// Attention's gradients against f64, for both masks: causal and not, grouped heads, ragged lengths, padded head dims,
// wide pitches, documents, queries that see nothing, the gradient of the log-sum-exp, keys given in two parts.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/attention_cases.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;
using Case = cuda_test::AttentionCase;
using Reference = cuda_test::AttentionReference;
template <class T>
using Problem = cuda_test::AttentionProblem<T>;

namespace attention_backward_test {
namespace {

const auto forward = [](const auto& call) { attention_forward_sm80(call); };
const auto backward = [](const auto& call) { attention_backward_sm80(call); };

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
      spoil(x.k, x.kv_layout, spoiled, spoiled + 128);
      spoil(x.v, x.kv_layout, spoiled, spoiled + 128);
      attention_forward_sm80(x.forward());
      for (auto* values : {&x.q, &x.dout, &x.out}) spoil(*values, x.q_layout, spoiled, spoiled + 128);
      attention_backward_sm80(x.backward());
      check_rows(x, expected, 128 - spoiled, 256 - spoiled);
    }
}

TEST_CASE("cuda attention_backward_sm80: keys in two parts, with out and lse over both, sum to the whole") {
  check_keys_in_parts(forward, backward);
}

TEST_CASE("cuda attention_backward_sm80: the same bits under every schedule") {
  check_same_bits<bf16>({2, 4, 1, 64, 130, 100, true, Documents::packed, true}, forward, backward);
}

TEST_CASE("cuda attention_backward_sm80: no queries leave keys without a gradient, no keys leave queries without one") {
  check_nothing_to_see<bf16>({1, 1, 1, 64, 5, 7, false}, forward, backward);
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
