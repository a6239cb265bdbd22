// Puzzle 2, a sum in a fixed order: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::reduction {

/// The kernel is launched twice. First kBlocks blocks of kThreads threads sum x [n]; then one block sums what they have
/// left in partial [kBlocks].
inline constexpr int kBlocks = 6, kThreads = 256;

struct Answers {
  /// out[b] = the sum of the elements of x [n] that block b takes. Together the blocks take each element once.
  void (*sum)(const float* x, float* out, int n);
  /// Barriers that a block of `threads` threads (a power of 2) needs for a sum in shared memory: one after each thread
  /// has written its number, and one after each halving but the last.
  int (*barriers)(int threads);
  /// Wavefronts that a warp needs to load slab[stride * lane], floats in shared memory.
  int (*wavefronts)(int stride);
};

/// The budget of the first launch, for all blocks together: x is read once, in whole sectors; there are no bank conflicts.
inline constexpr int kMostSharedBytes = kThreads * 4, kMostBarriers = 9, kMostWavefronts = 50 * kBlocks;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "02", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::reduction
