// Every level of the ladders of examples/cuda_lab against f64: over ragged sizes, at aligned and (except for products)
// unaligned addresses, and under all schedules, which must not change a bit of any result.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <cstring>
#include <string>

#include "examples/cuda_lab/array.h"
#include "examples/cuda_lab/ladders.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::slow_build;
using cuda_test::under_schedule;

namespace lab_test {
namespace {

/// A buffer that begins one element after a multiple of 16 bytes.
template <class T>
class Shifted : public Buffer<T> {
 public:
  explicit Shifted(std::size_t count) : Buffer<T>(count, 1) {}
};

/// Runs `level` on a ladder's problem, checks it against f64 and returns the results.
template <template <class> class Array>
std::vector<double> results_of(std::size_t ladder, const lab::Sizes& sizes, std::size_t level) {
  const lab::Ladder climbed = lab::ladders<Array>()[ladder];
  const std::unique_ptr<lab::Trial> trial = climbed.make(sizes);
  CAPTURE(std::string(climbed.levels[level].name));
  CAPTURE(fmt::format("{}", fmt::join(sizes, ", ")));
  trial->run(level, nullptr);
  CHECK(trial->error() < 1);
  std::vector<double> got;
  for (const lab::Checked& value : trial->results()) got.push_back(value.got);
  return got;
}

template <template <class> class Array>
void climb(std::size_t ladder, const lab::Sizes& sizes) {
  const auto levels = lab::ladders<Array>()[ladder].levels;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const bool repeats = levels[level].name != std::string("atomics");  // on a GPU they add in any order
    std::vector<double> first;
    for (std::uint64_t seed = 0; seed < (slow_build() ? 1U : 4U); ++seed) {
      CAPTURE(seed);
      under_schedule(seed, [&] {
        const std::vector<double> got = results_of<Array>(ladder, sizes, level);
        if (seed == 0) first = got;
        if (repeats) CHECK(std::memcmp(got.data(), first.data(), got.size() * sizeof(double)) == 0);
      });
    }
  }
}

void climb(const std::string& name) {
  const auto all = lab::ladders<Buffer>();
  for (std::size_t ladder = 0; ladder < all.size(); ++ladder) {
    if (all[ladder].name != name) continue;
    for (const lab::Sizes& sizes : all[ladder].ragged) climb<Buffer>(ladder, sizes);
    if (all[ladder].flops == 0) climb<Shifted>(ladder, all[ladder].ragged.back());
    return;
  }
  FAIL("no ladder is called " << name);
}

}  // namespace

TEST_CASE("cuda lab: every level of the product's ladder equals f64") { climb("product"); }
TEST_CASE("cuda lab: every level of attention's ladder equals f64") { climb("attention"); }
TEST_CASE("cuda lab: every level of the gradient norm's ladder equals f64") { climb("gradient norm"); }
TEST_CASE("cuda lab: every level of the transpose's ladder is exact") { climb("transpose"); }
TEST_CASE("cuda lab: every level of the softmax's ladder equals f64") { climb("softmax"); }
TEST_CASE("cuda lab: every level of AdamW's ladder equals f64") { climb("AdamW"); }
TEST_CASE("cuda lab: every level of the embedding's ladder equals f64") { climb("embedding"); }

TEST_CASE("cuda lab: an infinite norm skips the step in every level of AdamW's ladder") {
  const float infinite = INFINITY;
  Buffer<float> weight(5), m(5), v(5), scaled(5);
  Buffer<double> norm_squared(1);
  Buffer<bf16> gradient(5), low(5);
  for (auto* values : {&weight, &m, &v}) values->fill(0.5F);
  low.fill(0.5F);
  gradient.fill(infinite);
  norm_squared.fill(infinite);
  const std::vector<AdamWTensor<bf16>> tensors = {
      {weight.data(), m.data(), v.data(), gradient.data(), low.data(), 5, 0.1F}};
  for (const auto& level : lab::adamw::levels()) {
    CAPTURE(std::string(level.name));
    level.run({tensors, {1e-3F, 0.9F, 0.95F, 1e-8F, 2, 3, 1}, 2, norm_squared.data(), scaled.data()}, nullptr);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(weight.at(i) == 0.5);
      CHECK(m.at(i) == 0.5);
      CHECK(v.at(i) == 0.5);
      CHECK(low.at(i) == 0.5);
    }
  }
}

TEST_CASE("cuda lab: the sort refuses more tokens than fit into shared memory") {
  const int tokens = lab::embedding::kMostSorted + 1;
  CHECK(cuda_test::error_of([&] { lab::embedding::sorted({nullptr, nullptr, tokens, 1, 1, nullptr, nullptr}); }) != "");
}

TEST_CASE("cuda lab: the softmax in registers refuses rows that are longer than its registers") {
  const int width = lab::softmax::kMostInRegisters + 1;
  const auto refused = [&] { lab::softmax::warp_per_row({1, width, nullptr, nullptr, nullptr, nullptr}); };
  CHECK(cuda_test::error_of(refused).find("1025") != std::string::npos);
}

}  // namespace lab_test
