// The grader of puzzle 2.
#include "examples/puzzles/02_reduction/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::reduction {
namespace {

/// A block's sum, with as many barriers as it needs.
__global__ void halving(float* out) {
  TRIREME_SHARED(float, slab, 1024);
  slab[threadIdx.x] = 1;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    cuda::sync_threads();
    if (threadIdx.x < half) slab[threadIdx.x] += slab[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *out = slab[0];
}

__global__ void strided(float* out, unsigned stride) {
  TRIREME_SHARED(float, slab, 32 * 40);
  for (unsigned i = threadIdx.x; i < 32 * stride; i += 32) slab[i] = 0;
  cuda::sync_threads();
  out[threadIdx.x] = slab[stride * threadIdx.x];
}

void check_predictions(const Answers& answers, Grading& grading) {
  Array<float> out("out", 32);
  const int threads = 1 << grading.pick(6, 10);
  const cuda::emu::Traffic sum = counted([&] {
    cuda::launch({"halving", {1, 1, 1}, {static_cast<unsigned>(threads), 1, 1}}, halving, out.data());
  });
  grading.predict("barriers of a sum over a block", fmt::format("{} threads", threads), answers.barriers(threads),
                  static_cast<double>(sum.barriers));
  for (const int stride : {2 * grading.pick(1, 19), 2 * grading.pick(0, 19) + 1}) {
    const cuda::emu::Traffic load = counted([&] {
      cuda::launch({"strided", {1, 1, 1}, {32, 1, 1}}, strided, out.data(), static_cast<unsigned>(stride));
    });
    grading.predict("wavefronts of a load of slab[stride * lane]", fmt::format("stride = {}", stride),
                    answers.wavefronts(stride), static_cast<double>(load.bank_conflicts() + 1));
  }
}

struct Problem {
  int n;
  Tensor x;     // [n]
  Tensor want;  // [1], in f64
  double magnitudes = 0;

  Problem(Grading& grading, int length) : n(length), x(grading.random({n})), want(Tensor::zeros({1}, DType::f64)) {
    for (const float value : x.span<const float>()) {
      want.span<double>()[0] += double{value};
      magnitudes += std::abs(double{value});
    }
  }
  void partial_sums(const Answers& answers, Array<float>& partial) const {
    Array<float> in("x", x);
    cuda::launch({"sum", {kBlocks, 1, 1}, {kThreads, 1, 1}}, answers.sum, in.data(), partial.data(), n);
  }
  Tensor run(const Answers& answers) const {
    Array<float> partial("partial", kBlocks), total("total", 1);
    partial_sums(answers, partial);
    partial.use_as(Use::input);
    cuda::launch({"sum", {1, 1, 1}, {kThreads, 1, 1}}, answers.sum, partial.data(), total.data(), kBlocks);
    return total.tensor({1});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("sum: every length, the same bits always", [&] {
    for (const int n :
         {1, 5, 255, 256, 257, kBlocks * kThreads - 1, kBlocks * kThreads + 1, grading.pick(4000, 9000)}) {
      const Problem problem(grading, n);
      // Rounding errors are in proportion to the terms, which may cancel.
      expect_result(grading, {.label = fmt::format("n = {}", n),
                              .name = "the sum",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = problem.magnitudes},
                              .schedules = n < 1000 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int n = 4 * kBlocks * kThreads;
  const Problem problem(grading, n);
  const auto first_launch = [&] {
    Array<float> partial("partial", kBlocks);
    problem.partial_sums(answers, partial);
  };
  check_budget(grading, fmt::format("n = {}", n), first_launch,
               {.wavefronts = kMostWavefronts, .shared_bytes = kMostSharedBytes, .barriers = kMostBarriers},
               {{"x", n / 8, 0}, {"partial", 0, kBlocks}});
}

}  // namespace trireme::puzzles::reduction
