// The grader of puzzle 13.
#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/puzzles/13_attention/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::attention {
namespace {

/// Tiles with a key that some query of a block sees, counted key by key.
int tiles_of(int t) {
  int count = 0;
  for (int first = 0; first < t; first += kThreads)
    for (int key = 0; key < t; ++key)
      if (key % kTile == 0 && key <= first + kThreads - 1) ++count;
  return count;
}

struct Problem {
  int t;
  Tensor q, k, v, want;  // [t, kDim]

  Problem(Grading& grading, int tokens, float size = 1)
      : t(tokens), q(grading.random({t, kDim})), k(grading.random({t, kDim})), v(grading.random({t, kDim})) {
    for (Tensor* const x : {&q, &k})
      for (float& value : x->span<float>()) value *= size;
    solve();
  }
  /// The score of key j is first + step * j, for every query.
  Problem(Grading& grading, int tokens, float first, float step) : Problem(grading, tokens) {
    for (std::size_t i = 0; i < at(t * kDim); ++i) {
      q.span<float>()[i] = 1;
      const std::size_t key = i / kDim;
      k.span<float>()[i] = (first + step * static_cast<float>(key)) / (kScale * kDim);
    }
    solve();
  }
  void solve() {
    want = Tensor::zeros({t, kDim}, DType::f64);
    const auto row = [](const Tensor& x, int i) { return x.span<const float>().subspan(at(i * kDim)); };
    for (int i = 0; i < t; ++i) {
      std::vector<double> weights;
      for (int j = 0; j <= i; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < kDim; ++d) score += double{kScale} * double{row(q, i)[d]} * double{row(k, j)[d]};
        weights.push_back(score);
      }
      const double largest = *std::ranges::max_element(weights);
      double total = 0;
      for (double& weight : weights) total += weight = std::exp(weight - largest);
      for (int j = 0; j <= i; ++j)
        for (std::size_t d = 0; d < kDim; ++d)
          want.span<double>()[at(i * kDim) + d] += weights[at(j)] / total * double{row(v, j)[d]};
    }
  }
  Tensor run(const Answers& answers) const {
    Array<float> in_q("q", q), in_k("k", k), in_v("v", v), out("out", at(t * kDim));
    cuda::launch({"attend", {static_cast<unsigned>((t + kThreads - 1) / kThreads), 1, 1}, {kThreads, 1, 1}},
                 answers.attend, in_q.data(), in_k.data(), in_v.data(), out.data(), t);
    return out.tensor({t, kDim});
  }
};

void check_result(const Answers& answers, Grading& grading, const Problem& problem, const std::string& scores) {
  // A score of 100 has an error of some 1e-5, and so has its weight.
  expect_result(grading, {.label = fmt::format("t = {}{}", problem.t, scores),
                          .name = "out",
                          .run = [&] { return problem.run(answers); },
                          .want = problem.want,
                          .comparison = {.tolerance = 2e-4, .scale = 1},
                          .schedules = problem.t < 64 ? 4 : 2});
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  const int tokens = grading.pick(1000, 4000), blocks = grading.pick(3, 20);
  grading.predict("bytes of the scores, written and read", fmt::format("t = {}", tokens),
                  static_cast<double>(answers.score_bytes(tokens)), 2.0 * 4.0 * tokens * tokens);
  grading.predict("tiles of keys that all blocks need", fmt::format("t = {}", blocks * kThreads),
                  answers.tiles(blocks * kThreads), tiles_of(blocks * kThreads));
  bool right = grading.check("attend: every length", [&] {
    for (const int t : {1, 2, 31, 33, 65, grading.pick(97, 127)})
      check_result(answers, grading, Problem(grading, t), "");
  });
  right = grading.check("attend: scores of every size", [&] {
    check_result(answers, grading, Problem(grading, 40, 8), ", large scores");
    check_result(answers, grading, Problem(grading, 80, 0, 4), ", scores that grow");
    check_result(answers, grading, Problem(grading, 20, -300, -1), ", scores far below 0");
  }) && right;
  if (!right) return;
  constexpr int t = 160;
  const Problem problem(grading, t);
  std::uint64_t rows = 0;  // of keys, for all blocks
  for (int first = 0; first < t; first += kThreads) rows += static_cast<std::uint64_t>(std::min(first + kThreads, t));
  check_budget(grading, fmt::format("t = {}", t), [&] { problem.run(answers); },
               {.excess_sectors = Budget::any, .shared_bytes = kMostSharedBytes, .barriers = most_barriers(t)},
               {{"k", rows * kDim / 8, 0}, {"v", rows * kDim / 8, 0}});
}

}  // namespace trireme::puzzles::attention
