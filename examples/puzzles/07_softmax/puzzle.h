// Puzzle 7, softmax of rows: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::softmax {

/// A block of kThreads threads for each row.
inline constexpr int kThreads = 128, kWarps = kThreads / 32;

struct Answers {
  /// y[r][c] = exp(x[r][c]) / (exp(x[r][0]) + exp(x[r][1]) + ...). x, y [gridDim.x, columns]; columns may be any number
  /// from 1 on. Elements of x may be large, or -infinity; each row has one that is finite.
  void (*softmax)(const float* x, float* y, int columns);
  /// The largest whole number whose exponential is finite in f32.
  int (*largest_exponent)();
  /// Of the numbers in a and b together: the sum of exp(x - top), where top is the largest of all. top_a and sum_a are the
  /// largest number of a, and the sum of exp(x - top_a) over a; so for b.
  double (*joined_sum)(double top_a, double sum_a, double top_b, double sum_b);
};

/// The budget of a row: x is read twice and y written once, in whole sectors; no bank conflicts.
inline constexpr int kMostReads = 2, kMostBarriers = 4, kMostWavefronts = 100, kMostSharedBytes = 1024;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "07", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::softmax
