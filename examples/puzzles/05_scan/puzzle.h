// Puzzle 5, running sums of rows: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::scan {

/// A block of kThreads threads for each row.
inline constexpr int kThreads = 128;

struct Answers {
  /// y[r][c] = x[r][0] + ... + x[r][c]. x, y [gridDim.x, columns]; columns may be any number from 1 on.
  void (*scan)(const float* x, float* y, int columns);
  /// Rounds of a scan over `threads` threads (a power of 2) in which each thread adds the number that is 1, 2, 4, ...
  /// places before its own.
  int (*rounds)(int threads);
  /// Additions in all these rounds, of all threads together: in a round, threads without such a place do not add.
  int (*additions)(int threads);
};

/// The budget, for each kThreads columns of a row: x is read and y written once, in whole sectors; no bank conflicts.
inline constexpr int kMostBarriers = 18, kMostWavefronts = 120, kMostSharedBytes = 2 * kThreads * 4 + 256;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "05", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::scan
