// Attention by TMA and wgmma against f64: lengths about the edges of tiles, both masks, grouped heads, head dims that are
// padded, documents; blocks that take several tiles; skipped tiles; refusals.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/attention_cases.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::Documents;
using cuda_test::same_bits;
using cuda_test::under_schedules;
using Case = cuda_test::AttentionCase;
using Reference = cuda_test::AttentionReference;
template <class T>
using Problem = cuda_test::AttentionProblem<T>;

namespace {

template <class T>
void check(const Case& c) {
  CAPTURE(c.dim);
  CAPTURE(c.queries);
  CAPTURE(c.keys);
  CAPTURE(c.causal);
  CAPTURE(static_cast<int>(c.documents));
  Problem<T> x(c);
  attention_forward_sm90(x.forward());
  cuda_test::check_forward(x, Reference(x));
}

}  // namespace

TEST_CASE("cuda attention_sm90: causal, grouped, ragged and padded, equals f64") {
  under_schedules([] {
    check<bf16>({1, 1, 1, 64, 64, 64, false});
    check<f16>({2, 4, 2, 64, 70, 70, true});  // eight tiles for three blocks
    check<bf16>({1, 2, 1, 128, 33, 150, true});
    check<f16>({1, 1, 1, 40, 5, 129, false, Documents::none, false, 0});
    check<bf16>({1, 2, 2, 8, 1, 1, true});
    check<f16>({1, 3, 1, 72, 80, 10, true});  // the first 70 queries see no key
  });
}

TEST_CASE("cuda attention_sm90: every length about the edge of a tile") {
  cuda_test::under_schedule(2, [] {
    for (const int length : {1, 2, 63, 64, 65, 127, 128, 129}) {
      check<bf16>({1, 1, 1, 64, length, length, true});
      check<f16>({1, 1, 1, 128, length, 130 - length, false});
    }
    check<bf16>({1, 1, 1, 16, 193, 257, true});  // two tiles of queries and three of keys
    check<f16>({1, 1, 1, 104, 129, 385, true});
    for (int dim = 8; dim <= 128; dim += 8) check<bf16>({1, 2, 1, dim, 3, 20, false});
  });
}

TEST_CASE("cuda attention_sm90: documents in one sequence equal f64") {
  under_schedules([] {
    check<bf16>({2, 2, 1, 64, 260, 260, true, Documents::packed});
    check<f16>({1, 1, 1, 128, 190, 260, true, Documents::packed});
    check<f16>({2, 1, 1, 16, 150, 140, true, Documents::scattered});
    check<bf16>({1, 2, 1, 128, 140, 200, false, Documents::scattered});
  });
}

TEST_CASE("cuda attention_sm90: tiles of keys that no document needs are not read") {
  for (const int dim : {64, 128}) {
    CAPTURE(dim);
    // The second document begins with a tile of queries, and of keys: 384 is a multiple of 128 and of 192.
    const int length = dim == 64 ? 384 : 128;
    Problem<bf16> x({1, 1, 1, dim, length + 60, length + 60, true, Documents::packed});
    for (int i = 0; i < length + 60; ++i) x.first_key.set(i, i / length * length);
    const Reference expected(x);
    for (int i = 0; i < length; ++i) {
      x.k.set(x.kv_layout.at(0, i, 0, 0), bf16(NAN));
      x.v.set(x.kv_layout.at(0, i, 0, 0), bf16(NAN));
    }
    attention_forward_sm90(x.forward());
    double error = 0;
    for (int i = length; i < length + 60; ++i)
      for (int d = 0; d < dim; ++d) {
        const std::size_t at = x.q_layout.at(0, i, 0, d);
        const double e = std::abs(x.out.at(at) - expected.out[at]);
        error = std::isnan(e) ? 1e9 : std::max(error, e);
      }
    CHECK(error < 1.0 / 128);
  }
}

TEST_CASE("cuda attention_sm90: the same bits under every schedule") {
  const Case c{2, 4, 1, 64, 200, 260, true, Documents::packed};
  Problem<bf16> first(c);
  attention_forward_sm90(first.forward());
  under_schedules([&] {
    Problem<bf16> again(c);
    attention_forward_sm90(again.forward());
    CHECK(same_bits(first.out, again.out));
    CHECK(same_bits(first.lse, again.lse));
  });
}

TEST_CASE("cuda attention_sm90: no queries, no keys") {
  Problem<bf16> x({1, 2, 1, 64, 5, 7, false});
  AttentionForward<bf16> call = x.forward();
  call.queries = 0;
  attention_forward_sm90(call);
  CHECK(x.out.at(0) == 7);
  call = x.forward();
  call.keys = 0;
  attention_forward_sm90(call);
  CHECK(x.out.at(0) == 0);
  CHECK(x.lse.at(0) == -INFINITY);
}

TEST_CASE("cuda attention_sm90: calls it cannot take are refused with the constraint") {
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
}
