// The grader of puzzle 7.
#include <cmath>

#include "examples/puzzles/07_softmax/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::softmax {
namespace {

/// The largest number, and the sum of exp(x - top).
struct Part {
  double top, sum;
};
Part part_of(std::span<const float> values) {
  Part part = {double{*std::ranges::max_element(values)}, 0};
  for (const float value : values) part.sum += std::exp(double{value} - part.top);
  return part;
}

void check_predictions(const Answers& answers, Grading& grading) {
  int largest = 0;
  while (std::isfinite(std::exp(static_cast<float>(largest + 1)))) ++largest;
  grading.predict("the largest whole number with a finite exponential", "in f32", answers.largest_exponent(), largest);
  const auto given = [](const Part& a, const Part& b) {
    return fmt::format("tops {:.6g} and {:.6g}, sums {:.6g} and {:.6g}", a.top, b.top, a.sum, b.sum);
  };
  const Tensor values = grading.random({20});
  const auto all = values.span<const float>(), tail = all.subspan(7);
  const Part a = part_of(all.first(7)), b = part_of(tail), both = part_of(all);
  grading.predict("the sum of two parts", given(a, b), answers.joined_sum(a.top, a.sum, b.top, b.sum), both.sum);
  grading.predict("the sum of two parts, in the other order", given(b, a),
                  answers.joined_sum(b.top, b.sum, a.top, a.sum), both.sum);
}

struct Problem {
  int rows, columns;
  Tensor x, want;  // [rows, columns]

  Problem(Grading& grading, int r, int c)
      : rows(r), columns(c), x(grading.random({r, c})), want(Tensor::zeros({r, c}, DType::f64)) {
    for (int row = 0; row < r; ++row) {
      const auto width = at(c), first = at(row) * width;
      const std::span<float> own = x.span<float>().subspan(first, width);
      for (float& value : own) {
        value = 4 * value + (row % 2 == 0 ? 1000.0F : -1000.0F);
        if (row > 0 && &value != &own.back() && grading.pick(0, 3) == 0) value = -INFINITY;  // as of a mask
      }
      const Part part = part_of(own);
      for (std::size_t i = 0; i < width; ++i)
        want.span<double>()[first + i] = std::exp(double{own[i]} - part.top) / part.sum;
    }
  }
  Tensor run(const Answers& answers) const {
    Array<float> in("x", x), y("y", at(rows * columns));
    cuda::launch({"softmax", {static_cast<unsigned>(rows), 1, 1}, {kThreads, 1, 1}}, answers.softmax, in.data(),
                 y.data(), columns);
    return y.tensor({rows, columns});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("softmax: every length, and large numbers", [&] {
    const std::pair<int, int> shapes[] = {{1, 1}, {2, 31}, {2, 127}, {3, 129}, {2, grading.pick(300, 700)}};
    for (const auto& [rows, columns] : shapes) {
      const Problem problem(grading, rows, columns);
      expect_result(grading, {.label = fmt::format("x [{}, {}]", rows, columns),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .schedules = columns < 300 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int rows = 2, columns = 4 * kThreads;
  const Problem problem(grading, rows, columns);
  constexpr std::uint64_t whole = rows * columns / 8;
  check_budget(grading, fmt::format("x [{}, {}]", rows, columns), [&] { problem.run(answers); },
               {.wavefronts = rows * kMostWavefronts, .shared_bytes = kMostSharedBytes, .barriers = kMostBarriers},
               {{"x", kMostReads * whole, 0}, {"y", 0, whole}});
}

}  // namespace trireme::puzzles::softmax
