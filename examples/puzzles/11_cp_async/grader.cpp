// The grader of puzzle 11.
#include "examples/puzzles/11_cp_async/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::pipeline {
namespace {

unsigned tiles(int size) { return static_cast<unsigned>((size + kTile - 1) / kTile); }

struct Problem {
  int m, n, k;
  Tensor a, b, want;  // [m, k], [k, n], [m, n]

  Problem(Grading& grading, int rows, int columns, int depth)
      : m(rows),
        n(columns),
        k(depth),
        a(grading.random({m, k})),
        b(grading.random({k, n})),
        want(Tensor::zeros({m, n}, DType::f64)) {
    const auto value = [](const Tensor& x, int i) { return double{x.span<const float>()[at(i)]}; };
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l) want.span<double>()[at(i * n + j)] += value(a, i * k + l) * value(b, l * n + j);
  }
  Tensor run(const Answers& answers) const {
    Array<float> in_a("a", a), in_b("b", b), c("c", at(m * n));
    cuda::launch({"multiply", {tiles(n), tiles(m), 1}, {kThreads, 1, 1}}, answers.multiply, in_a.data(), in_b.data(),
                 c.data(), m, n, k);
    return c.tensor({m, n});
  }
  std::string label() const { return fmt::format("a [{}, {}], b [{}, {}]", m, k, k, n); }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  const int bandwidth = grading.pick(1500, 5000), latency = grading.pick(400, 900),
            multiprocessors = grading.pick(100, 200);
  grading.predict("bytes in flight for each multiprocessor",
                  fmt::format("{} GB/s, {} ns, {} multiprocessors", bandwidth, latency, multiprocessors),
                  answers.bytes_in_flight(bandwidth, latency, multiprocessors),
                  1.0 * bandwidth * latency / multiprocessors);
  const bool right = grading.check("multiply: every shape", [&] {
    const int shapes[][3] = {{1, 4, 4},    {16, 16, 16}, {16, 16, 48}, {15, 12, 20},
                             {17, 20, 32}, {3, 36, 64},  {33, 16, 36}, {20, 24, 4 * grading.pick(20, 30)}};
    for (const auto& [m, n, k] : shapes) {
      const Problem problem(grading, m, n, k);
      expect_result(grading, {.label = problem.label(),
                              .name = "c",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = static_cast<double>(k)},
                              .schedules = m * k < 1000 ? 6 : 3});
    }
  });
  if (!right) return;
  const Problem problem(grading, 32, 48, 128);
  const std::uint64_t of_a = 32 * 128 / 8, of_b = 128 * 48 / 8;
  check_budget(grading, problem.label(), [&] { problem.run(answers); },
               {.shared_bytes = kMostSharedBytes,
                .barriers = most_barriers(problem.k),
                .reads_without_copies = 1.0 / steps(problem.k)},
               {{"a", of_a * tiles(problem.n), 0}, {"b", of_b * tiles(problem.m), 0}, {"c", 0, 32 * 48 / 8}});
}

}  // namespace trireme::puzzles::pipeline
