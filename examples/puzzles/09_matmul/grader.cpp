// The grader of puzzle 9. Each step is graded by itself; wrong answers have only one.
#include "examples/puzzles/09_matmul/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::matmul {
namespace {

struct Sizes {
  int m, n, k;
};

void check_predictions(const Answers& answers, Grading& grading) {
  const int side = 16 * grading.pick(1, 4), k = grading.pick(20, 200);
  const int down = grading.pick(2, 9), across = grading.pick(2, 9);
  double floats = 0;
  for (int block = 0; block < down * across; ++block) floats += 2.0 * side * k;
  grading.predict("floats that all blocks read",
                  fmt::format("m, n, k = {}, {}, {}, side = {}", down * side, across * side, k, side),
                  answers.floats_read(down * side, across * side, k, side), floats);
  const int mine = grading.pick(2, 9);
  double loads = 0, products = 0;
  for (int i = 0; i < mine; ++i, loads += 2)
    for (int j = 0; j < mine; ++j) ++products;
  grading.predict("products for each load", fmt::format("mine = {}", mine), answers.products_per_load(mine),
                  products / loads);
}

struct Problem {
  Sizes sizes;
  Tensor a, b, want;  // [m, k], [k, n], [m, n]
  double magnitudes = 0;

  Problem(Grading& grading, Sizes s)
      : sizes(s),
        a(grading.random({s.m, s.k})),
        b(grading.random({s.k, s.n})),
        want(Tensor::zeros({s.m, s.n}, DType::f64)) {
    const auto element = [](const Tensor& matrix, int row, int column, int width) {
      return double{matrix.span<const float>()[at(row * width + column)]};
    };
    for (int row = 0; row < s.m; ++row)
      for (int column = 0; column < s.n; ++column) {
        double magnitude = 0, sum = 0;
        for (int i = 0; i < s.k; ++i) {
          const double product = element(a, row, i, s.k) * element(b, i, column, s.n);
          sum += product;
          magnitude += std::abs(product);
        }
        want.span<double>()[at(row * s.n + column)] = sum;
        magnitudes = std::max(magnitudes, magnitude);
      }
  }
  Tensor run(Kernel* kernel, int side) const {
    const auto [m, n, k] = sizes;
    const auto blocks = [side](int count) { return static_cast<unsigned>((count + side - 1) / side); };
    Array<float> left("a", a), right("b", b), product("c", at(m * n));
    cuda::launch({"matmul", {blocks(n), blocks(m), 1}, {kThreads, kThreads, 1}}, kernel, left.data(), right.data(),
                 product.data(), m, n, k);
    return product.tensor({m, n});
  }
};

struct Step {
  const char* name;
  Kernel* kernel;
  int side;  ///< of a block's elements of c
  std::vector<Sizes> shapes;
  Budget block_step;  ///< of a block, for kDepth of k
};

/// The budget's size: c [64, 128], with two blocks of the larger side.
constexpr Sizes kCounted = {64, 128, 2 * kDepth};

void check_step_budget(const Step& step, Grading& grading) {
  const auto [m, n, k] = kCounted;
  const Problem problem(grading, kCounted);
  const auto blocks = at(m / step.side) * at(n / step.side), depths = at(k / kDepth);
  Budget budget = step.block_step;
  for (std::uint64_t* const of_grid : {&budget.wavefronts, &budget.accesses})
    if (*of_grid != Budget::any) *of_grid *= blocks * depths;
  if (budget.barriers != Budget::any) budget.barriers *= depths;
  // Without shared memory each warp reads elements of two rows of a, and 16 columns of b, for each k.
  const bool naive = budget.wavefronts == Budget::any;
  const auto sectors = [&](int count, int times) { return at(count / 8) * at(times); };
  check_budget(grading, fmt::format("{}, m, n, k = {}, {}, {}", step.name, m, n, k),
               [&] { problem.run(step.kernel, step.side); }, budget,
               {{"a", naive ? sectors(m * n / 32, 16 * k) : sectors(m * k, n / step.side), 0},
                {"b", naive ? sectors(m * n / 32, 16 * k) : sectors(k * n, m / step.side), 0},
                {"c", 0, sectors(m * n, 1)}});
}

void check_step(const Step& step, Grading& grading) {
  if (step.kernel == nullptr) return;
  const bool right = grading.check(fmt::format("{}: every shape", step.name), [&] {
    for (const Sizes& sizes : step.shapes) {
      const Problem problem(grading, sizes);
      expect_result(grading, {.label = fmt::format("m, n, k = {}, {}, {}", sizes.m, sizes.n, sizes.k),
                              .name = "c",
                              .run = [&] { return problem.run(step.kernel, step.side); },
                              .want = problem.want,
                              .comparison = {.tolerance = 1e-6, .scale = problem.magnitudes},
                              .schedules = 2});
    }
  });
  if (right) check_step_budget(step, grading);
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const std::vector<Sizes> small = {
      {1, 1, 1}, {15, 17, 16}, {17, 16, 15}, {grading.pick(18, 32), grading.pick(33, 40), 33}};
  check_step({"naive", answers.naive, kTile, small, {.excess_sectors = Budget::any}}, grading);
  check_step({"tiles",
              answers.tiles,
              kTile,
              small,
              {.wavefronts = kMostTileWavefronts, .shared_bytes = kMostTileBytes, .barriers = kMostBarriers}},
             grading);
  check_step({"registers",
              answers.registers,
              kBlock,
              {{1, 1, 1}, {63, 65, 17}, {grading.pick(66, 70), 64, 15}},
              {.wavefronts = kMostWavefronts, .shared_bytes = kMostBytes, .barriers = kMostBarriers}},
             grading);
  check_step({"vectors",
              answers.vectors,
              kBlock,
              {{1, 4, 4}, {63, 68, 20}, {grading.pick(66, 70), 60, 12}},
              {.wavefronts = kMostWavefronts,
               .shared_bytes = kMostBytes,
               .barriers = kMostBarriers,
               .accesses = kMostVectorAccesses}},
             grading);
}

}  // namespace trireme::puzzles::matmul
