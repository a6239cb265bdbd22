// The grader of puzzle 6.
#include "examples/puzzles/06_histogram/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::histogram {
namespace {

__global__ void read_rotated(float* out, int step) {
  TRIREME_SHARED(float, copies, 32 * 64);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 32 * 64; i += 32) copies[i] = 0;
  cuda::sync_threads();
  out[lane] = copies[lane * 64 + (5 + step * lane) % 64];
}

void check_predictions(const Answers& answers, Grading& grading) {
  for (const int bins : {32, grading.pick(10, 100), 50257}) {
    constexpr int bytes = 227 * 1024;  // of a block, on a GPU of compute capability 9.0
    int threads = 0;
    while ((threads + 32) * bins * 4L <= bytes) threads += 32;
    grading.predict("threads whose copies fit into shared memory", fmt::format("{} bins, {} bytes", bins, bytes),
                    answers.threads_that_fit(bins, bytes), threads);
  }
  Array<float> out("out", 32);
  for (const int step : {0, 1, 2 * grading.pick(1, 8), 2 * grading.pick(1, 8) + 1}) {
    const cuda::emu::Traffic load = counted([&] {
      cuda::launch({"read_rotated", {1, 1, 1}, {32, 1, 1}}, read_rotated, out.data(), step);
    });
    grading.predict("wavefronts of a load of copies[lane][(c + step * lane) % threads]", fmt::format("step = {}", step),
                    answers.wavefronts(step), static_cast<double>(load.bank_conflicts() + 1));
  }
}

struct Problem {
  int n;
  std::vector<int> bin;  // [n] half of them the same one, as in a text, where few tokens are most of it
  Tensor weight;         // [n]
  Tensor want;           // [kBins], in f64
  double magnitudes = 0;

  Problem(Grading& grading, int length, bool all_have_bins = false)
      : n(length), weight(grading.random({n})), want(Tensor::zeros({kBins}, DType::f64)) {
    const int frequent = grading.pick(0, kBins - 1);
    for (const float value : weight.span<const float>()) {
      const int b = grading.pick(0, 1) == 0 ? frequent
                    : all_have_bins         ? grading.pick(0, kBins - 1)
                                            : grading.pick(-1, kBins);
      bin.push_back(b);
      if (b < 0 || b >= kBins) continue;
      want.span<double>()[at(b)] += double{value};
      magnitudes += std::abs(double{value});
    }
    if (magnitudes == 0) magnitudes = 1;  // no element is in a bin
  }
  void partial_sums(const Answers& answers, Array<float>& partial) const {
    Array<int> bins("bin", bin);
    Array<float> weights("weight", weight);
    cuda::launch({"histogram", {kBlocks, 1, 1}, {kThreads, 1, 1}}, answers.histogram, bins.data(), weights.data(),
                 partial.data(), n);
  }
  Tensor run(const Answers& answers) const {
    Array<float> partial("partial", kBlocks * kBins), out("out", kBins);
    partial_sums(answers, partial);
    partial.use_as(Use::input);
    cuda::launch({"join", {1, 1, 1}, {kBins, 1, 1}}, answers.join, partial.data(), out.data());
    return out.tensor({kBins});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("histogram: every length, the same bits always", [&] {
    for (const int n : {1, kThreads - 1, kThreads + 1, kBlocks * kThreads + 1, grading.pick(1200, 2500)}) {
      const Problem problem(grading, n);
      expect_result(grading, {.label = fmt::format("n = {}", n),
                              .name = "out",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = problem.magnitudes},
                              .schedules = n < 1000 ? 3 : 2});
    }
  });
  if (!right) return;
  constexpr int n = 4 * kBlocks * kThreads;
  // Lanes that skip an element would do their next one while others do this one, for the emulator's counters.
  const Problem problem(grading, n, true);
  const auto first_launch = [&] {
    Array<float> partial("partial", kBlocks * kBins);
    problem.partial_sums(answers, partial);
  };
  check_budget(grading, fmt::format("n = {}", n), first_launch,
               {.wavefronts = kMostWavefronts, .shared_bytes = kMostSharedBytes, .barriers = kMostBarriers},
               {{"bin", n / 8, 0}, {"weight", n / 8, 0}, {"partial", 0, kBlocks * kBins}});
}

}  // namespace trireme::puzzles::histogram
