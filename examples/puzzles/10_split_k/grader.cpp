// The grader of puzzle 10.

#include "examples/puzzles/10_split_k/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::split_k {
namespace {

int tiles(int size, int tile = kTile) { return (size + tile - 1) / tile; }

/// Writes all of partial, or reads it.
__global__ void pass(float* partial, float* c, int count, int parts, bool writes) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int part = 0; part < parts; ++part)
    if (writes)
      partial[part * count + i] = 0;
    else
      c[i] = partial[part * count + i];
}

void check_predictions(const Answers& answers, Grading& grading) {
  const int m = grading.pick(20, 200), n = grading.pick(20, 200), parts = grading.pick(2, 9);
  grading.predict("blocks of multiply", fmt::format("m = {}, n = {}, parts = {}", m, n, parts),
                  answers.blocks(m, n, parts), tiles(m) * tiles(n) * parts);
  const int rows = kTile * grading.pick(1, 4), columns = kTile * grading.pick(1, 4);
  const auto count = static_cast<unsigned>(rows * columns);
  const cuda::emu::Traffic both = counted([&] {
    Array<float> partial("partial", count * static_cast<unsigned>(parts)), c("c", count);
    for (const bool writes : {true, false})
      cuda::launch({"pass", {count / 256, 1, 1}, {256, 1, 1}}, pass, partial.data(), c.data(), rows * columns, parts,
                   writes);
  });
  grading.predict("sectors of partial, written and read",
                  fmt::format("m = {}, n = {}, parts = {}", rows, columns, parts),
                  static_cast<double>(answers.sectors(rows, columns, parts)),
                  static_cast<double>(both.sectors("partial", true) + both.sectors("partial", false)));
}

struct Sizes {
  int m, n, k, parts;
};

struct Problem {
  Sizes sizes;
  Tensor a, b, parts, sum;  // [m, k], [k, n]; in f64, [parts, m, n] and [m, n]

  Problem(Grading& grading, const Sizes& s)
      : sizes(s),
        a(grading.random({s.m, s.k})),
        b(grading.random({s.k, s.n})),
        parts(Tensor::zeros({s.parts, s.m, s.n}, DType::f64)),
        sum(Tensor::zeros({s.m, s.n}, DType::f64)) {
    const auto value = [](const Tensor& x, int i) { return double{x.span<const float>()[at(i)]}; };
    for (int i = 0; i < s.m; ++i)
      for (int j = 0; j < s.n; ++j)
        for (int l = 0; l < s.k; ++l) {
          const double term = value(a, i * s.k + l) * value(b, l * s.n + j);
          const int part = l / length(s.k, s.parts);
          parts.span<double>()[at((part * s.m + i) * s.n + j)] += term;
          sum.span<double>()[at(i * s.n + j)] += term;
        }
  }
  std::size_t count() const { return at(sizes.m) * at(sizes.n); }
  void multiply(const Answers& answers, Array<float>& partial) const {
    Array<float> in_a("a", a), in_b("b", b);
    cuda::launch({"multiply",
                  {static_cast<unsigned>(tiles(sizes.n)), static_cast<unsigned>(tiles(sizes.m)),
                   static_cast<unsigned>(sizes.parts)},
                  {kTile, kTile, 1}},
                 answers.multiply, in_a.data(), in_b.data(), partial.data(), sizes.m, sizes.n, sizes.k);
  }
  Tensor join(const Answers& answers, const Tensor& partial) const {
    Array<float> in("partial", partial), c("c", count());
    const int elements = sizes.m * sizes.n;
    cuda::launch({"join", {static_cast<unsigned>(tiles(elements, kJoinThreads)), 1, 1}, {kJoinThreads, 1, 1}},
                 answers.join, in.data(), c.data(), elements, sizes.parts);
    return c.tensor({sizes.m, sizes.n});
  }
  Tensor run(const Answers& answers) const {
    Array<float> partial("partial", count() * at(sizes.parts));
    multiply(answers, partial);
    return partial.tensor({sizes.parts, sizes.m, sizes.n});
  }
  std::string label() const {
    return fmt::format("a [{}, {}], b [{}, {}], {} parts", sizes.m, sizes.k, sizes.k, sizes.n, sizes.parts);
  }
  /// Rounding errors are in proportion to the terms, which may cancel.
  labs::Comparison comparison() const { return {.tolerance = 1e-6, .scale = static_cast<double>(sizes.k)}; }
};

void check_results(const Answers& answers, Grading& grading, const Problem& problem, int schedules) {
  expect_result(grading, {.label = problem.label(),
                          .name = "partial",
                          .run = [&] { return problem.run(answers); },
                          .want = problem.parts,
                          .comparison = problem.comparison(),
                          .schedules = schedules});
  const Tensor partial = problem.run(answers);
  expect_result(grading, {.label = problem.label(),
                          .name = "c",
                          .run = [&] { return problem.join(answers, partial); },
                          .want = problem.sum,
                          .comparison = problem.comparison(),
                          .schedules = 2});
}

void check_budgets(const Answers& answers, Grading& grading) {
  const Problem problem(grading, {32, 48, 256, 4});
  const auto [m, n, k, parts] = problem.sizes;
  const auto sectors = [](int count) { return sectors_of_floats(static_cast<std::uint64_t>(count)); };
  check_budget(grading, "multiply, " + problem.label(), [&] { problem.run(answers); },
               {.shared_bytes = kMostSharedBytes, .barriers = most_barriers(k, parts)},
               {{"a", sectors(m * k) * static_cast<std::uint64_t>(tiles(n)), 0},
                {"b", sectors(k * n) * static_cast<std::uint64_t>(tiles(m)), 0},
                {"partial", 0, sectors(parts * m * n)}});
  const Tensor partial = problem.run(answers);
  check_budget(grading, "join, " + problem.label(), [&] { problem.join(answers, partial); }, {},
               {{"partial", sectors(parts * m * n), 0}, {"c", 0, sectors(m * n)}});
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("multiply and join: every shape, the same bits always", [&] {
    const Sizes all[] = {{1, 1, 1, 1},
                         {16, 16, 33, 2},
                         {1, 17, 31, 3},
                         {17, 1, 64, 2},
                         {15, 20, 40, 7},
                         {33, 16, 16, 2},
                         {18, 33, grading.pick(100, 200), 4}};
    for (const Sizes& sizes : all)
      check_results(answers, grading, Problem(grading, sizes), sizes.m * sizes.k < 1000 ? 4 : 2);
  });
  if (right) check_budgets(answers, grading);
}

}  // namespace trireme::puzzles::split_k
