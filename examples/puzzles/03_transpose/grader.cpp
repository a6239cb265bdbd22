// The grader of puzzle 3.
#include "examples/puzzles/03_transpose/puzzle.h"
#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles::transposition {
namespace {

constexpr int kMostPitch = 70;

__global__ void column(float* out, int pitch) {
  TRIREME_SHARED(float, tile, kTile* kMostPitch);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kTile * pitch; i += 32) tile[i] = 0;
  cuda::sync_threads();
  out[lane] = tile[lane * pitch + 5];
}

__global__ void direct(const float* x, float* y, int rows, int columns) {
  const int row = static_cast<int>(blockIdx.y), column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  y[column * rows + row] = x[row * columns + column];
}

std::uint64_t tiles(int count) { return static_cast<std::uint64_t>((count + kTile - 1) / kTile); }

void check_predictions(const Answers& answers, Grading& grading) {
  Array<float> out("out", 32);
  for (const int pitch : {32, 2 * grading.pick(16, 34), 2 * grading.pick(16, 34) + 1}) {
    const cuda::emu::Traffic load = counted([&] {
      cuda::launch({"column", {1, 1, 1}, {32, 1, 1}}, column, out.data(), pitch);
    });
    grading.predict("wavefronts of a column", fmt::format("rows of {} floats", pitch), answers.wavefronts(pitch),
                    static_cast<double>(load.bank_conflicts() + 1));
  }
  const int rows = 32 * grading.pick(1, 3), columns = 32 * grading.pick(1, 3);
  const cuda::emu::Traffic both = counted([&] {
    Array<float> x("x", Tensor::zeros({rows, columns})), y("y", static_cast<std::size_t>(rows * columns));
    cuda::launch({"direct", {static_cast<unsigned>(columns / 32), static_cast<unsigned>(rows), 1}, {32, 1, 1}}, direct,
                 x.data(), y.data(), rows, columns);
  });
  grading.predict("sectors without shared memory", fmt::format("[{}, {}]", rows, columns),
                  static_cast<double>(answers.sectors(rows, columns)),
                  static_cast<double>(both.sectors("x", false) + both.sectors("y", true)));
}

struct Problem {
  int rows, columns;
  Tensor x, want;  // [rows, columns], [columns, rows]

  Problem(Grading& grading, int r, int c)
      : rows(r), columns(c), x(grading.random({r, c})), want(Tensor::zeros({c, r}, DType::f64)) {
    for (int i = 0; i < r; ++i)
      for (int j = 0; j < c; ++j) want.span<double>()[at(j * r + i)] = double{x.span<const float>()[at(i * c + j)]};
  }
  Tensor run(const Answers& answers) const {
    Array<float> in("x", x), y("y", static_cast<std::size_t>(rows * columns));
    cuda::launch({"transpose",
                  {static_cast<unsigned>(tiles(columns)), static_cast<unsigned>(tiles(rows)), 1},
                  {kTile, kRowsOfThreads, 1}},
                 answers.transpose, in.data(), y.data(), rows, columns);
    return y.tensor({columns, rows});
  }
};

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  check_predictions(answers, grading);
  const bool right = grading.check("transpose: every shape", [&] {
    const std::pair<int, int> shapes[] = {
        {1, 1}, {1, 33}, {31, 32}, {33, 1}, {33, 31}, {64, 64}, {grading.pick(65, 95), grading.pick(33, 63)}};
    for (const auto& [rows, columns] : shapes) {
      const Problem problem(grading, rows, columns);
      expect_result(grading, {.label = fmt::format("x [{}, {}]", rows, columns),
                              .name = "y",
                              .run = [&] { return problem.run(answers); },
                              .want = problem.want,
                              .schedules = rows * columns < 1000 ? 4 : 2});
    }
  });
  if (!right) return;
  constexpr int rows = 96, columns = 72;  // with tiles at an edge
  const Problem problem(grading, rows, columns);
  constexpr std::uint64_t whole = rows * columns / 8;
  check_budget(grading, fmt::format("x [{}, {}]", rows, columns), [&] { problem.run(answers); },
               {.shared_bytes = kMostSharedBytes, .barriers = kMostBarriers}, {{"x", whole, 0}, {"y", 0, whole}});
}

}  // namespace trireme::puzzles::transposition
