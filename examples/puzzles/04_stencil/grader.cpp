// The grader of puzzle 4.
#include <algorithm>
#include <vector>

#include "examples/puzzles/04_stencil/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::stencil {
namespace {

constexpr int kWeights = 2 * kRadius + 1;

__global__ void shifted(const float* x, float* y, int first) {
  y[threadIdx.x] = x[first + static_cast<int>(threadIdx.x)];
}

/// Elements of x that `threads` outputs depend on, counted from the formula of the convolution.
int elements_of(int threads) {
  std::vector<bool> used(static_cast<std::size_t>(threads + 4 * kRadius));
  for (int i = 0; i < threads; ++i)
    for (int k = -kRadius; k <= kRadius; ++k) used[at(2 * kRadius + i + k)] = true;
  return static_cast<int>(std::ranges::count(used, true));
}

void check_predictions(const Answers& answers, Grading& grading) {
  const int threads = 32 * grading.pick(1, 8);
  grading.predict("elements of x for the outputs of a block", fmt::format("{} outputs", threads),
                  answers.elements(threads), elements_of(threads));
  for (const int first : {8 * grading.pick(0, 4), 8 * grading.pick(0, 4) + grading.pick(1, 7)}) {
    Array<float> x("x", Tensor::zeros({128})), y("y", 32);
    const cuda::emu::Traffic load = counted([&] {
      cuda::launch({"shifted", {1, 1, 1}, {32, 1, 1}}, shifted, x.data(), y.data(), first);
    });
    grading.predict("sectors of a load of x[first + lane]", fmt::format("first = {}", first), answers.sectors(first),
                    static_cast<double>(load.sectors("x", false)));
  }
}

struct Problem {
  int n;
  Tensor x, w, want;  // [n], [kWeights], [n]

  Problem(Grading& grading, int length)
      : n(length), x(grading.random({n})), w(grading.random({kWeights})), want(Tensor::zeros({n}, DType::f64)) {
    const auto value = [](const Tensor& tensor, int i) {
      return double{tensor.span<const float>()[static_cast<std::size_t>(i)]};
    };
    for (int i = 0; i < n; ++i)
      for (int k = -kRadius; k <= kRadius; ++k)
        if (i + k >= 0 && i + k < n)
          want.span<double>()[static_cast<std::size_t>(i)] += value(w, kRadius + k) * value(x, i + k);
  }
  unsigned blocks() const { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }
  Tensor run(const Answers& answers) const {
    Array<float> in("x", x), weights("w", w), y("y", static_cast<std::size_t>(n));
    cuda::launch({"convolve", {blocks(), 1, 1}, {kThreads, 1, 1}}, answers.convolve, in.data(), weights.data(),
                 y.data(), n);
    return y.tensor({n});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("convolve: every length", [&] {
    for (const int n : {1, 3, 5, 127, 128, 129, 131, 133, 256, grading.pick(1000, 2000)}) {
      const Problem problem(grading, n);
      expect_result(grading, {.label = fmt::format("n = {}", n),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.scale = 1},
                              .schedules = n < 1000 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int n = 16 * kThreads;
  const Problem problem(grading, n);
  check_budget(grading, fmt::format("n = {}", n), [&] { problem.run(answers); },
               {.excess_sectors = Budget::any, .shared_bytes = kMostSharedBytes, .barriers = kMostBarriers},
               {{"x", kMostSectors * problem.blocks(), 0}, {"y", 0, n / 8}});
}

}  // namespace trireme::puzzles::stencil
