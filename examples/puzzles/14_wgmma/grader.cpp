// The grader of puzzle 14.
#include <array>
#include <string>
#include <vector>

#include "cuda/emu/wgmma_registers.h"
#include "examples/puzzles/14_wgmma/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::wgmma {
namespace {

unsigned tiles(int size, int tile) { return static_cast<unsigned>((size + tile - 1) / tile); }

/// Bits 16 to 29 have no meaning for these operands.
void check_descriptor(const Answers& answers, Grading& grading) {
  const auto address = static_cast<std::uint32_t>(1024 * grading.pick(1, 200) + 32 * grading.pick(0, 3));
  const std::uint64_t got = answers.descriptor(address);
  const auto field = [&](const char* what, std::uint64_t have, std::uint64_t want) {
    grading.predict(what, fmt::format("address = {}", address), static_cast<double>(have), static_cast<double>(want));
  };
  field("descriptor, bits 0 to 13", got & 0x3fffU, address >> 4);
  field("descriptor, bits 32 to 45", (got >> 32) & 0x3fffU, 1024 >> 4);
  field("descriptor, bits 62 and 63", got >> 62, 1);
  field("descriptor, bits 14, 15, 30, 31 and 46 to 61", got & 0x3fffc000c000c000U, 0);
}

void check_places(const Answers& answers, Grading& grading) {
  grading.check("places of the sums", [&] {
    for (std::size_t thread = 0; thread < kThreads; ++thread)
      for (std::size_t i = 0; i < kN / 2; ++i) {
        const std::size_t want = cuda::emu::row_of(thread, i) * kN + cuda::emu::column_of(thread, i);
        const int got = answers.place(static_cast<int>(thread), static_cast<int>(i));
        grading.expect(got == static_cast<int>(want), "sum {} of thread {} is element {} of the tile, not {}", i,
                       thread, want, got);
      }
  });
}

struct Problem {
  int m, n, k;
  std::vector<bf16> a, b;  // [m, k], [n, k]
  Tensor want;             // [m, n], in f64

  Problem(Grading& grading, int rows, int columns, int depth)
      : m(rows),
        n(columns),
        k(depth),
        a(values(grading, m * k)),
        b(values(grading, n * k)),
        want(Tensor::zeros({m, n}, DType::f64)) {
    const auto value = [](const std::vector<bf16>& x, int i) { return double{static_cast<float>(x[at(i)])}; };
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l) want.span<double>()[at(i * n + j)] += value(a, i * k + l) * value(b, j * k + l);
  }
  static std::vector<bf16> values(Grading& grading, int count) {
    std::vector<bf16> all;
    const Tensor random = grading.random({count});
    for (const float value : random.span<const float>()) all.emplace_back(value);
    return all;
  }
  Tensor run(const Answers& answers) const {
    Array<bf16> in_a("a", std::span<const bf16>(a)), in_b("b", std::span<const bf16>(b));
    Array<float> c("c", at(m * n));
    cuda::launch({"multiply", {tiles(n, kN), tiles(m, kM), 1}, {kThreads, 1, 1}, kSharedBytes}, answers.multiply,
                 in_a.data(), in_b.data(), c.data(), m, n, k);
    return c.tensor({m, n});
  }
  std::string label() const { return fmt::format("a [{}, {}], b [{}, {}]", m, k, n, k); }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_descriptor(answers, grading);
  check_places(answers, grading);
  const bool right = grading.check("multiply: every shape", [&] {
    const std::array<int, 3> shapes[] = {{64, 32, 64}, {1, 2, 1},    {64, 32, 128},
                                         {63, 30, 65}, {65, 34, 16}, {20, 12, grading.pick(130, 190)}};
    for (const auto& [m, n, k] : shapes) {
      const Problem problem(grading, m, n, k);
      expect_result(grading, {.label = problem.label(),
                              .name = "c",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = static_cast<double>(k)},
                              .schedules = 3});
    }
  });
  if (!right) return;
  const Problem problem(grading, 64, 64, 128);
  check_budget(grading, problem.label(), [&] { problem.run(answers); },
               {.shared_bytes = kSharedBytes, .barriers = most_barriers(problem.k)},
               {{"a", 2 * 64 * 128 / 16, 0}, {"b", 64 * 128 / 16, 0}, {"c", 0, 64 * 64 / 8}});
}

}  // namespace trireme::puzzles::wgmma
