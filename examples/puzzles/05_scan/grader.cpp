// The grader of puzzle 5.
#include "examples/puzzles/05_scan/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::scan {
namespace {

void check_predictions(const Answers& answers, Grading& grading) {
  const int threads = 1 << grading.pick(4, 10);
  // Counted by doing it: how far each place's sum reaches.
  std::vector<int> reach(static_cast<std::size_t>(threads), 1);
  int rounds = 0, additions = 0;
  for (int distance = 1; reach.back() < threads; distance *= 2, ++rounds) {
    const std::vector<int> previous = reach;
    for (int i = distance; i < threads; ++i, ++additions)
      reach[static_cast<std::size_t>(i)] += previous[static_cast<std::size_t>(i - distance)];
  }
  grading.predict("rounds of a scan over a block", fmt::format("{} threads", threads), answers.rounds(threads), rounds);
  grading.predict("additions of a scan over a block", fmt::format("{} threads", threads), answers.additions(threads),
                  additions);
}

struct Problem {
  int rows, columns;
  Tensor x, want;  // [rows, columns]
  double magnitudes = 0;

  Problem(Grading& grading, int r, int c)
      : rows(r), columns(c), x(grading.random({r, c})), want(Tensor::zeros({r, c}, DType::f64)) {
    for (int row = 0; row < r; ++row) {
      double sum = 0, magnitude = 0;
      for (int column = 0; column < c; ++column) {
        const std::size_t element = at(row * c + column);
        magnitude += std::abs(double{x.span<const float>()[element]});
        want.span<double>()[element] = sum += double{x.span<const float>()[element]};
      }
      magnitudes = std::max(magnitudes, magnitude);
    }
  }
  Tensor run(const Answers& answers) const {
    Array<float> in("x", x), y("y", static_cast<std::size_t>(rows * columns));
    cuda::launch({"scan", {static_cast<unsigned>(rows), 1, 1}, {kThreads, 1, 1}}, answers.scan, in.data(), y.data(),
                 columns);
    return y.tensor({rows, columns});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("scan: every length", [&] {
    const std::pair<int, int> shapes[] = {{1, 1}, {2, 2}, {2, 127}, {2, 128}, {3, 129}, {2, grading.pick(300, 700)}};
    for (const auto& [rows, columns] : shapes) {
      const Problem problem(grading, rows, columns);
      expect_result(grading, {.label = fmt::format("x [{}, {}]", rows, columns),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = problem.magnitudes},
                              .schedules = columns < 300 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int rows = 2, parts = 4, columns = parts * kThreads;
  const Problem problem(grading, rows, columns);
  constexpr std::uint64_t whole = rows * columns / 8;
  check_budget(grading, fmt::format("x [{}, {}]", rows, columns), [&] { problem.run(answers); },
               {.wavefronts = rows * parts * kMostWavefronts,
                .shared_bytes = kMostSharedBytes,
                .barriers = parts * kMostBarriers},
               {{"x", whole, 0}, {"y", 0, whole}});
}

}  // namespace trireme::puzzles::scan
