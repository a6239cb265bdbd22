// Puzzle 4, a convolution of one dim with its halo in shared memory: the kernel to write, its launch, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::stencil {

/// An output depends on kRadius inputs on each side of it, and on its own. Block b has the outputs from kThreads * b on,
/// one for each thread.
inline constexpr int kRadius = 4, kThreads = 128;

struct Answers {
  /// y[i] = the sum over k, from -kRadius to kRadius, of w[kRadius + k] * x[i + k]; x is 0 outside of [0, n). x, y [n],
  /// w [2 * kRadius + 1]
  void (*convolve)(const float* x, const float* w, float* y, int n);
  /// Elements of x that a block reads for `threads` outputs, if it reads each once and none is outside of x.
  int (*elements)(int threads);
  /// Sectors that a warp touches in one load of x[first + lane]; x begins at a sector.
  int (*sectors)(int first);
};

/// The budget, of a block: x in at most 48 sectors (an output needs 16 of its own); one barrier; no bank conflicts.
inline constexpr int kMostSectors = 48, kMostSharedBytes = 4 * (kThreads + 4 * kRadius), kMostBarriers = 1;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "04", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::stencil
