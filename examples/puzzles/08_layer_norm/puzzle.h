// Puzzle 8, layer norm: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::layer_norm {

/// A block of 32 x kRows threads (threadIdx.x, threadIdx.y) has kRows rows, each a warp's: row kRows * blockIdx.x +
/// threadIdx.y, which need not exist.
inline constexpr int kRows = 4;
inline constexpr float kEps = 1e-5F;

struct Answers {
  /// y[r][c] = (x[r][c] - mean) / sqrt(variance + kEps) * gamma[c] + beta[c], with the mean and the variance (the mean
  /// squared difference from the mean) of row r. x, y [rows, columns]; gamma, beta [columns]
  void (*layer_norm)(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns);
  /// The smallest power of 2, m, with which m * m + 1 == m * m in f32.
  int (*first_lost)();
  /// Two sets of numbers, of count_a and count_b numbers, have the means mean_a and mean_b, and the sums of squared
  /// differences from their own means squares_a and squares_b. That sum for both sets together, from their common mean?
  double (*joined_squares)(double count_a, double mean_a, double squares_a, double count_b, double mean_b,
                           double squares_b);
};

/// The budget: x is read twice and y written once, in whole sectors; gamma and beta are read once for each row; no
/// barriers of the block, and no bank conflicts.
inline constexpr int kMostReads = 2, kMostBarriers = 0, kMostSharedBytes = 2048;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "08", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::layer_norm
