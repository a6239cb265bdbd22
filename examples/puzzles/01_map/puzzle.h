// Puzzle 1, a sum of two vectors of any length: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::mapping {

/// The launch has these, whatever n is.
inline constexpr unsigned kBlocks = 4, kThreads = 128;

struct Answers {
  /// c[i] = a[i] + b[i]. a, b, c [n]
  void (*add)(const float* a, const float* b, float* c, int n);
  /// Sectors that a warp touches in one load of x[stride * lane]. x holds floats and begins at a sector; stride >= 1.
  int (*sectors)(int stride);
};

// The budget: every element of a, b and c moves once, and every sector is used whole.

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "01", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::mapping
