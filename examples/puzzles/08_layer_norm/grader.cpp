// The grader of puzzle 8.
#include <cmath>

#include "examples/puzzles/08_layer_norm/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::layer_norm {
namespace {

struct Moments {
  double mean, squares;  ///< squares: the sum of squared differences from the mean
};
Moments moments_of(std::span<const float> values) {
  Moments moments = {0, 0};
  for (const float value : values) moments.mean += double{value} / static_cast<double>(values.size());
  for (const float value : values) moments.squares += (double{value} - moments.mean) * (double{value} - moments.mean);
  return moments;
}

void check_predictions(const Answers& answers, Grading& grading) {
  int lost = 1;
  const auto square = [](int m) { return static_cast<float>(m) * static_cast<float>(m); };
  while (square(lost) + 1 != square(lost)) lost *= 2;
  grading.predict("the first power of 2 whose square does not change by 1", "in f32", answers.first_lost(), lost);
  const int count = grading.pick(20, 40), first = grading.pick(3, 15);
  const Tensor values = grading.random({count});
  const auto all = values.span<const float>(), head = all.first(at(first)), tail = all.subspan(at(first));
  const Moments a = moments_of(head), b = moments_of(tail);
  grading.predict("the squares of two sets together",
                  fmt::format("counts {} and {}, means {:.6g} and {:.6g}, squares {:.6g} and {:.6g}", first,
                              count - first, a.mean, b.mean, a.squares, b.squares),
                  answers.joined_squares(first, a.mean, a.squares, count - first, b.mean, b.squares),
                  moments_of(all).squares);
}

struct Problem {
  int rows, columns;
  Tensor x, gamma, beta, want;  // [rows, columns], [columns], [columns], [rows, columns]

  Problem(Grading& grading, int r, int c)
      : rows(r),
        columns(c),
        x(grading.random({r, c})),
        gamma(grading.random({c})),
        beta(grading.random({c})),
        want(Tensor::zeros({r, c}, DType::f64)) {
    for (int row = 0; row < r; ++row) {
      const auto width = at(c), first = at(row) * width;
      const std::span<float> own = x.span<float>().subspan(first, width);
      for (float& value : own) value += row % 2 == 0 ? 2000.0F : 0.0F;  // a mean far from 0
      const Moments moments = moments_of(own);
      const double scale = 1 / std::sqrt(moments.squares / c + double{kEps});
      for (std::size_t i = 0; i < width; ++i)
        want.span<double>()[first + i] =
            (double{own[i]} - moments.mean) * scale * double{gamma.span<float>()[i]} + double{beta.span<float>()[i]};
    }
  }
  Tensor run(const Answers& answers) const {
    Array<float> in("x", x), scales("gamma", gamma), offsets("beta", beta), y("y", at(rows * columns));
    cuda::launch({"layer_norm", {static_cast<unsigned>((rows + kRows - 1) / kRows), 1, 1}, {32, kRows, 1}},
                 answers.layer_norm, in.data(), scales.data(), offsets.data(), y.data(), rows, columns);
    return y.tensor({rows, columns});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("layer_norm: every shape, and a mean far from 0", [&] {
    const std::pair<int, int> shapes[] = {{1, 1}, {5, 31}, {3, 33}, {kRows, 64}, {kRows + 1, grading.pick(200, 400)}};
    for (const auto& [rows, columns] : shapes) {
      const Problem problem(grading, rows, columns);
      // A number near 2000 is rounded by 1e-4.
      expect_result(grading, {.label = fmt::format("x [{}, {}]", rows, columns),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 2e-3},
                              .schedules = columns < 200 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int rows = 2 * kRows, columns = 256;
  const Problem problem(grading, rows, columns);
  constexpr std::uint64_t whole = rows * columns / 8;
  check_budget(grading, fmt::format("x [{}, {}]", rows, columns), [&] { problem.run(answers); },
               {.shared_bytes = kMostSharedBytes, .barriers = kMostBarriers},
               {{"x", kMostReads * whole, 0}, {"gamma", whole, 0}, {"beta", whole, 0}, {"y", 0, whole}});
}

}  // namespace trireme::puzzles::layer_norm
