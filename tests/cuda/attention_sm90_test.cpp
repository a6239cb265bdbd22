// Attention by TMA and wgmma, and its backward, against f64: lengths about the edges of tiles, both masks, grouped
// heads, head dims that are padded, documents; blocks that take several tiles; skipped tiles; refusals.
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

namespace attention_sm90_test {
namespace {

const auto forward = [](const auto& call) { attention_forward_sm90(call); };
const auto backward = [](const auto& call) { attention_backward_sm90(call); };

template <class T>
void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(c.causal);
  CAPTURE(static_cast<int>(c.documents));
  Problem<T> x(c);
  const Reference expected(x);
  for (const int tile : {128, 192}) {
    if (tile == 192 && c.dim > 64) continue;  // refused
    CAPTURE(tile);
    x.out.fill(7);
    x.lse.fill(7);
    attention_forward_sm90_by(tile, x.forward());
    cuda_test::check_forward(x, expected);
  }
  attention_backward_sm90(x.backward());
  cuda_test::check_backward(x, expected);
}

}  // namespace

TEST_CASE("cuda attention_sm90 and its backward: causal, grouped, ragged and padded, equals f64") {
  under_schedules([] {
    check<bf16>({1, 1, 1, 64, 64, 64, false});
    check<f16>({2, 4, 2, 64, 70, 70, true});  // eight tiles for three blocks
    check<bf16>({1, 2, 1, 128, 33, 150, true});
    check<f16>({1, 1, 1, 40, 5, 129, false, Documents::none, false, 0});
    check<bf16>({1, 2, 2, 8, 1, 1, true});
    check<f16>({1, 3, 1, 72, 80, 10, true});  // the first 70 queries see no key
  });
}

TEST_CASE("cuda attention_sm90 and its backward: three tiles of keys and of queries for each of three blocks") {
  under_schedules([] {
    check<bf16>({3, 3, 3, 64, 70, 70, true});
    check<f16>({2, 4, 4, 128, 40, 70, true});
    // Tiles of keys without queries, in the middle of a block's turns.
    check<f16>({3, 3, 1, 16, 70, 300, true, Documents::scattered});
  });
}

TEST_CASE("cuda attention_sm90 and its backward: every length about the edge of a tile") {
  cuda_test::under_schedule(2, [] {
    check<bf16>({1, 1, 1, 16, 193, 257, true});  // two tiles of queries and three of keys
    if (cuda_test::slow_build()) return;
    for (const int length : {1, 2, 63, 64, 65, 127, 128, 129}) {
      check<bf16>({1, 1, 1, 64, length, length, true});
      check<f16>({1, 1, 1, 128, length, 130 - length, false});
    }
    check<f16>({1, 1, 1, 104, 129, 385, true});
    for (int dim = 8; dim <= 128; dim += 8) check<bf16>({1, 2, 1, dim, 3, 20, false});
  });
}

TEST_CASE("cuda attention_sm90 and its backward: documents in one sequence equal f64") {
  under_schedules([] {
    check<bf16>({2, 2, 1, 64, 260, 260, true, Documents::packed});
    check<f16>({1, 1, 1, 128, 190, 260, true, Documents::packed});
    check<f16>({2, 1, 1, 16, 150, 140, true, Documents::scattered});
    check<bf16>({1, 2, 1, 128, 140, 200, false, Documents::scattered});
  });
}

TEST_CASE("cuda attention_sm90 and its backward: tiles that no document needs are not read") {
  for (const int dim : {64, 128}) {
    CAPTURE(dim);
    // Two documents. The second begins at the start of a tile of queries and of a tile of keys: 384 is a multiple of
    // 128 and of 192. The inputs of one document are NaN; the results of the other must be right.
    if (dim == 64 && cuda_test::slow_build()) continue;
    const int length = dim == 64 ? 384 : 128, all = length + 60;
    for (const bool first : {true, false}) {
      CAPTURE(first);
      Problem<bf16> x({1, 1, 1, dim, all, all, true, Documents::packed});
      for (int i = 0; i < all; ++i) x.first_key.set(i, i / length * length);
      const Reference expected(x);
      const int begin = first ? 0 : length, end = first ? length : all;
      for (auto* values : {&x.k, &x.v}) spoil(*values, x.kv_layout, begin, end);
      attention_forward_sm90(x.forward());
      for (auto* values : {&x.q, &x.dout, &x.out}) spoil(*values, x.q_layout, begin, end);
      attention_backward_sm90(x.backward());
      check_rows(x, expected, first ? length : 0, first ? all : length);
    }
  }
}

TEST_CASE("cuda attention_backward_sm90: the gradient of the log-sum-exp") {
  under_schedules([] {
    check<f16>({1, 2, 1, 64, 70, 40, false, Documents::none, true});
    check<f16>({2, 2, 2, 128, 33, 70, true, Documents::none, true});
  });
}

TEST_CASE("cuda attention_backward_sm90: keys in two parts, with out and lse over both, sum to the whole") {
  check_keys_in_parts(forward, backward);
}

TEST_CASE("cuda attention_sm90 and its backward: the same bits under every schedule") {
  check_same_bits<bf16>({2, 4, 1, 64, 200, 260, true, Documents::packed}, forward, backward);
}

TEST_CASE("cuda attention_sm90 and its backward: no queries, no keys") {
  check_nothing_to_see<bf16>({1, 2, 1, 64, 5, 7, false}, forward, backward);
}

TEST_CASE("cuda attention_sm90 and its backward: calls it cannot take are refused with the constraint") {
  Problem<bf16> x({1, 2, 1, 64, 5, 7, false});
  const auto refused = [&](auto&& spoil, const char* reason) {
    AttentionForward<bf16> call = x.forward();
    spoil(call);
    const std::string error = cuda_test::error_of([&] { attention_forward_sm90(call); });
    CAPTURE(error);
    CHECK(error.find(reason) != std::string::npos);
  };
  refused([](auto& call) { call.head_dim = 136; }, "multiple of 8 up to 128");
  refused([](auto& call) { call.kv_heads = 3; }, "expected a divisor");
  refused([](auto& call) { call.scale = 0; }, "scale is 0; expected above 0");
  refused([](auto& call) { call.v += 3; }, "v begins 6 bytes after a multiple of 16");
  refused([](auto& call) { call.out_pitch = 132; }, "the pitch of out is 132 elements, with 2 heads of 64");
  refused([](auto& call) { call.q_pitch = 64; }, "holds all heads");
  Problem<bf16> wide({1, 1, 1, 72, 5, 7, false});
  for (const auto& [tile, problem] : {std::pair(64, &x), std::pair(192, &wide)})
    CHECK(cuda_test::error_of([&] { attention_forward_sm90_by(tile, problem->forward()); }).find("expected 128 or") !=
          std::string::npos);
  AttentionBackward<bf16> backward = x.backward();
  backward.dkv_pitch = 40;
  const std::string error = cuda_test::error_of([&] { attention_backward_sm90(backward); });
  CHECK(error.find("the pitch of dk is 40 elements, with 1 heads of 64") != std::string::npos);
}

}  // namespace attention_sm90_test
