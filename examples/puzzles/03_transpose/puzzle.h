// Puzzle 3, a transpose by tiles: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::transposition {

/// A block of 32 x 8 threads (threadIdx.x, threadIdx.y) has a tile of 32 x 32 elements: that of rows 32 * blockIdx.y and
/// following, columns 32 * blockIdx.x and following, of x.
inline constexpr int kTile = 32, kRowsOfThreads = 8;

struct Answers {
  /// y[c][r] = x[r][c]. x [rows, columns], y [columns, rows]
  void (*transpose)(const float* x, float* y, int rows, int columns);
  /// Wavefronts of a warp that reads a column of a tile in shared memory, whose rows begin `pitch` floats apart.
  int (*wavefronts)(int pitch);
  /// Sectors of a transpose without shared memory, of a matrix [rows, columns], both multiples of 32: each warp reads 32
  /// elements of a row of x, and writes them to a column of y. Read and written together.
  long (*sectors)(int rows, int columns);
};

/// The budget: x and y move once, in whole sectors, if rows and columns are multiples of 8. There are no bank conflicts.
inline constexpr int kMostSharedBytes = 33 * 32 * 4, kMostBarriers = 1;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "03", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::transposition
