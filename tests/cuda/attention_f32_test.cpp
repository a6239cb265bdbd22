// Attention in f32, forward and backward, against the formulas in f64 with the whole matrix of probabilities: masks,
// documents, grouped heads, ragged lengths, any head dims and pitches, queries that see nothing.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/attention_cases.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace attention_f32_test {
namespace {

const auto forward = [](const auto& call) { attention_forward_f32(call); };
const auto backward = [](const auto& call) { attention_backward_f32(call); };

void check(const AttentionCase& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  AttentionProblem<float> x(c);
  attention_forward_f32(x.forward());
  attention_backward_f32(x.backward());
  const AttentionReference expected(x);
  for (std::size_t i = 0; i < x.lse.size(); ++i) {
    if (std::isinf(expected.lse[i]))
      CHECK(x.lse.at(i) == expected.lse[i]);
    else
      CHECK(x.lse.at(i) == doctest::Approx(expected.lse[i]).epsilon(2e-6));
  }
  // Scores reach 40, so each is rounded by 4e-6 at most, and the probabilities inherit that error.
  CHECK(largest_error(x.out, expected.out, x.q_layout, 7) < 5e-6);
  CHECK(largest_error(x.dq, expected.dq, x.q_layout, 7) < 2e-5);
  CHECK(largest_error(x.dk, expected.dk, x.kv_layout, 7) < 4e-5);
  CHECK(largest_error(x.dv, expected.dv, x.kv_layout, 7) < 2e-5);
}

}  // namespace

TEST_CASE("cuda attention_f32: masks, grouped heads, ragged lengths and any head dim, equal f64") {
  under_schedules([] {
    check({1, 1, 1, 64, 64, 64, false, Documents::none, false, 0});
    check({2, 4, 2, 32, 70, 70, true, Documents::none, false, 0});
    check({1, 2, 1, 128, 33, 90, true, Documents::none, false, 0});
    check({1, 1, 1, 7, 5, 129, false, Documents::none, false, 3});
    check({1, 2, 2, 4, 1, 1, true, Documents::none, false, 0});
    check({1, 1, 1, 72, 80, 10, true});  // the first 70 queries see no key
  });
}

TEST_CASE("cuda attention_f32: documents, the gradient of the log-sum-exp, queries that see nothing") {
  under_schedules([] {
    check({2, 4, 2, 16, 70, 70, true, Documents::scattered, true, 0});
    check({1, 2, 1, 40, 33, 100, false, Documents::scattered, true, 2});
  });
}

TEST_CASE("cuda attention_f32: the same bits under every schedule") {
  check_same_bits<float>({1, 2, 1, 24, 70, 50, false, Documents::scattered, true}, forward, backward);
}

TEST_CASE("cuda attention_f32: no queries leave keys without a gradient, no keys leave queries without one") {
  check_nothing_to_see<float>({1, 1, 1, 16, 5, 7, false}, forward, backward);
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
