// attention_merge, which joins attention over two sets of keys, against f64.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/kernels/attention_merge.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace merge_test {
namespace {

/// out [B, T, H, D] dense; part has its heads before its tokens; part_lse is [B, T, H] in memory, lse [B, H, T].
template <class T>
void check_merge(std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t width, std::size_t offset) {
  CAPTURE(width);
  const std::int64_t rows = batch * tokens * heads;
  const auto values = static_cast<std::size_t>(rows * width), count = static_cast<std::size_t>(rows);
  Buffer<T> part(values, offset);
  Buffer<float> out(values), before(values), lse(count), lse_before(count), part_lse(count);
  part.fill_random(1);
  out.fill_random(2);
  before.fill_random(2);
  for (Buffer<float>* const buffer : {&lse, &lse_before}) buffer->fill_random(3, 20);
  part_lse.fill_random(4, 20);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 3 == 1) part_lse.set(i, -INFINITY);
    if (i % 5 == 1) lse.set(i, -INFINITY), lse_before.set(i, -INFINITY);
  }
  attention_merge<T>({batch,
                      tokens,
                      heads,
                      width,
                      part.data(),
                      {tokens * heads * width, width, tokens * width},
                      part_lse.data(),
                      {tokens * heads, 1, heads},
                      out.data(),
                      {tokens * heads * width, heads * width, width},
                      lse.data(),
                      {tokens * heads, tokens, 1}});
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t h = row % heads, t = row / heads % tokens, b = row / heads / tokens;
    const auto at = static_cast<std::size_t>((b * heads + h) * tokens + t);
    const double a = lse_before.at(at), c = part_lse.at(static_cast<std::size_t>(row)), top = std::max(a, c);
    const bool none = std::isinf(top);
    const double joined = none ? top : top + std::log(std::exp(a - top) + std::exp(c - top));
    CHECK((none ? lse.at(at) == top : std::abs(lse.at(at) - joined) < 1e-5));
    for (std::int64_t i = 0; i < width; ++i) {
      const auto o = static_cast<std::size_t>(row * width + i);
      const auto p = static_cast<std::size_t>(((b * heads + h) * tokens + t) * width + i);
      const double x = before.at(o), y = part.at(p);
      const double expected = none ? x : x * std::exp(a - joined) + y * std::exp(c - joined);
      keep_largest(worst, std::abs(out.at(o) - expected));
    }
  }
  CHECK(worst < 1e-5);  // out is f32; lse near 20 has an ulp of 2e-6, which the exponentials carry on
}

}  // namespace

TEST_CASE_TEMPLATE("cuda attention merge: two sets of keys, either of them empty, equal f64", T, float, bf16, f16) {
  under_schedules([] {
    check_merge<T>(1, 1, 1, 1, 0);
    check_merge<T>(2, 3, 5, 64, 0);
    check_merge<T>(1, 4, 2, 130, 1);
    check_merge<T>(3, 5, 1, 28, 0);   // eight heads per warp, and a warp that is not full
    check_merge<T>(1, 1, 3, 300, 0);  // longer than a warp takes at once
  });
}

}  // namespace merge_test
