// The grader of puzzle 12.
#include <vector>

#include "examples/puzzles/12_tma/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::tma {
namespace {

struct Problem {
  int rows, columns;
  std::vector<bf16> x;  // [rows, columns]
  Tensor want;          // [columns], in f64

  Problem(Grading& grading, int r, int c) : rows(r), columns(c), want(Tensor::zeros({c}, DType::f64)) {
    const Tensor values = grading.random({r, c});
    for (const float value : values.span<const float>()) {
      x.emplace_back(value);
      want.span<double>()[(x.size() - 1) % at(c)] += double{static_cast<float>(x.back())};
    }
  }
  Tensor run(const Answers& answers) const {
    Array<bf16> in("x", std::span<const bf16>(x));
    Array<float> y("y", at(columns));
    const cuda::TensorMap map = cuda::encode_tiled<2>("puzzle 12", "x", in.data(), {columns, rows},
                                                      {std::int64_t{2} * columns}, {kColumns, kRows});
    cuda::launch({"sums",
                  {static_cast<unsigned>((columns + kColumns - 1) / kColumns), 1, 1},
                  {kThreads, 1, 1},
                  kStages * kTileBytes},
                 answers.sums, map, y.data(), rows, columns);
    return y.tensor({columns});
  }
  std::string label() const { return fmt::format("x [{}, {}]", rows, columns); }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  const int tile = grading.pick(7, 60), rows = grading.pick(1, kRows - 1);
  // Phases of one stage end one after another, from parity 0 on.
  int parity = 0;
  for (int t = tile; t >= kStages; t -= kStages) parity = 1 - parity;
  grading.predict("parity of a wait for a tile", fmt::format("tile = {}", tile), answers.parity(tile), parity);
  grading.predict("bytes to expect for the last tile", fmt::format("rows = {}", rows), answers.bytes(rows), kTileBytes);
  const bool right = grading.check("sums: every shape", [&] {
    const std::pair<int, int> shapes[] = {{1, 8},
                                          {16, 64},
                                          {17, 64},
                                          {48, 72},
                                          {49, 64},
                                          {100, 136},
                                          {16 * grading.pick(7, 9) + grading.pick(1, 15), 56}};
    for (const auto& [r, c] : shapes) {
      const Problem problem(grading, r, c);
      expect_result(grading, {.label = problem.label(),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = static_cast<double>(r)},
                              .schedules = 6});
    }
  });
  if (!right) return;
  const Problem problem(grading, 160, 128);
  check_budget(grading, problem.label(), [&] { problem.run(answers); },
               {.barriers = kMostBarriers, .tma_loads = kStages}, {{"x", 160 * 128 / 16, 0}, {"y", 0, 128 / 8}});
}

}  // namespace trireme::puzzles::tma
