// The grader of puzzle 1.
#include "examples/puzzles/01_map/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::mapping {
namespace {

__global__ void strided(const float* x, float* y, int stride) {
  y[threadIdx.x] = x[stride * static_cast<int>(threadIdx.x)];
}

void check_predictions(const Answers& answers, Grading& grading) {
  for (const int stride : {grading.pick(2, 7), grading.pick(9, 40)}) {
    const Tensor values = Tensor::zeros({32 * stride});
    const auto run = [&] {
      Array<float> x("x", values), y("y", 32);
      cuda::launch({"strided", {1, 1, 1}, {32, 1, 1}}, strided, x.data(), y.data(), stride);
    };
    grading.predict("sectors of a load of x[stride * lane]", fmt::format("stride = {}", stride),
                    answers.sectors(stride), static_cast<double>(counted(run).sectors("x", false)));
  }
}

struct Problem {
  int n;
  Tensor a, b, sum;  // [n]

  Problem(Grading& grading, int length)
      : n(length), a(grading.random({n})), b(grading.random({n})), sum(Tensor::zeros({n}, DType::f64)) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
      sum.span<double>()[i] = double{a.span<float>()[i]} + double{b.span<float>()[i]};
  }
  Tensor run(const Answers& answers) const {
    Array<float> a_in("a", a), b_in("b", b), c("c", static_cast<std::size_t>(n));
    cuda::launch({"add", {kBlocks, 1, 1}, {kThreads, 1, 1}}, answers.add, a_in.data(), b_in.data(), c.data(), n);
    return c.tensor({n});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("add: every length", [&] {
    for (const int n : {1, 31, 127, 128, 129, 511, 512, 513, grading.pick(3000, 6000)}) {
      const Problem problem(grading, n);
      expect_result(grading, {.label = fmt::format("n = {}", n),
                              .name = "c",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.sum});
    }
  });
  if (!right) return;
  constexpr int n = 8192;
  const Problem problem(grading, n);
  check_budget(grading, fmt::format("n = {}", n), [&] { problem.run(answers); }, {},
               {{"a", n / 8, 0}, {"b", n / 8, 0}, {"c", 0, n / 8}});
}

}  // namespace trireme::puzzles::mapping
