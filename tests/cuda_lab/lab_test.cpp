// Every level of the ladders of products and attention against f64, over ragged sizes and all schedules. Also the costs
// of the levels, and how wrong levels are reported.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "examples/cuda_lab/attention/ladder.h"
#include "examples/cuda_lab/gemm/ladder.h"
#include "examples/cuda_lab/wrong_levels.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::keep_largest;
using cuda_test::under_schedules;

namespace lab_test {
namespace {

void check(const lab::Level& level, int m, int n, int k) {
  CAPTURE(std::string(level.name));
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  const auto size = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  Buffer<bf16> a(size(m, k)), b(size(k, n));
  Buffer<float> c(size(m, n));
  a.fill_random(1);
  b.fill_random(2);
  level.run({m, n, k, a.data(), b.data(), c.data()}, nullptr);
  double worst = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l)
        sum += a.at(size(i, k) + static_cast<std::size_t>(l)) * b.at(size(l, n) + static_cast<std::size_t>(j));
      const double error = std::abs(c.at(size(i, n) + static_cast<std::size_t>(j)) - sum);
      keep_largest(worst, error);
    }
  CHECK(worst < 1e-5);
}

void check(const lab::AttentionLevel& level, int heads, int tokens, bool causal) {
  CAPTURE(std::string(level.name));
  CAPTURE(tokens);
  CAPTURE(causal);
  constexpr auto kDim = static_cast<std::size_t>(lab::kHeadDim);
  const auto rows = static_cast<std::size_t>(heads) * static_cast<std::size_t>(tokens),
             keys = static_cast<std::size_t>(tokens);
  Buffer<bf16> q(rows * kDim), k(q.size()), v(q.size()), out(q.size());
  Buffer<float> scores(rows * keys);
  q.fill_random(1, 2);
  k.fill_random(2, 2);
  v.fill_random(3);
  const double scale = 0.125;
  level.run({heads, tokens, causal, static_cast<float>(scale), q.data(), k.data(), v.data(), out.data(), scores.data()},
            nullptr);
  double worst = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t first = row / keys * keys, end = causal ? row + 1 : first + keys;
    double sum = 0;
    std::vector<double> expected(kDim);
    for (std::size_t key = first; key < end; ++key) {
      double score = 0;
      for (std::size_t d = 0; d < kDim; ++d) score += q.at(row * kDim + d) * k.at(key * kDim + d);
      const double weight = std::exp(score * scale);
      sum += weight;
      for (std::size_t d = 0; d < kDim; ++d) expected[d] += weight * v.at(key * kDim + d);
    }
    for (std::size_t d = 0; d < kDim; ++d) {
      const double error = std::abs(out.at(row * kDim + d) - expected[d] / sum);
      keep_largest(worst, error);
    }
  }
  CHECK(worst < 1.0 / 128);  // values below one: half a bf16 step for the result, as much again for 16-bit weights
}

}  // namespace

TEST_CASE("cuda lab: every level of the product's ladder equals f64") {
  under_schedules([] {
    for (const lab::Level& level : lab::gemm_levels()) {
      check(level, 8, 8, 8);
      check(level, 40, 136, 24);
      check(level, 136, 16, 72);
    }
  });
}

TEST_CASE("cuda lab: every level of attention's ladder equals f64") {
  under_schedules([] {
    for (const lab::AttentionLevel& level : lab::attention_levels()) {
      check(level, 1, 1, true);
      check(level, 2, 33, true);
      check(level, 1, 70, false);
    }
  });
}

TEST_CASE("cuda lab: no level of a ladder is limited to less than the one before it") {
  double before = 0;
  for (const lab::Level& level : lab::gemm_levels()) {
    CAPTURE(std::string(level.name));
    CHECK(lab::limit_tflops(level.cost) >= before);
    before = lab::limit_tflops(level.cost);
  }
  double most = 1e30;
  for (const lab::AttentionLevel& level : lab::attention_levels()) {
    CAPTURE(std::string(level.name));
    CHECK(level.bytes(4096) <= most);
    most = level.bytes(4096);
  }
}

TEST_CASE("cuda lab: a level is wrong above what is accepted, and when its error is not a number") {
  lab::WrongLevels wrong;
  wrong.add("sums", "right", 0.5, 1);
  wrong.add("sums", "just", 1, 1);
  CHECK(wrong.names().empty());
  wrong.add("sums", "far", 1.5, 1);
  wrong.add("sums", "none", std::nan(""), 1);
  wrong.add("norms", "negative", -std::nan(""), 1);
  wrong.add("norms", "endless", INFINITY, 1);
  REQUIRE(wrong.names().size() == 4);
  CHECK(wrong.names()[0] == "far of sums (error 1.5e+00; expected at most 1.0e+00)");
  CHECK(wrong.names()[1].find("none of sums") == 0);
  CHECK(wrong.names()[2].find("negative of norms") == 0);
  CHECK(wrong.names()[3].find("endless of norms") == 0);
}

}  // namespace lab_test
