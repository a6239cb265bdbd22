// Puzzle 6, sums by bins: the kernels to write, how they are launched, and their budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::histogram {

/// First kBlocks blocks of kThreads threads sum the weights of each bin; then one block of kBins threads joins what they
/// have left in partial [kBlocks, kBins].
inline constexpr int kBlocks = 4, kThreads = 128, kBins = 32;

struct Answers {
  /// partial[block][b] = the sum of weight[i] over those i of this block with bin[i] == b. Together the blocks take each i
  /// in 0 .. n - 1 once. Elements whose bin is negative, or kBins or more, are in no sum. bin, weight [n]
  void (*histogram)(const int* bin, const float* weight, float* partial, int n);
  /// out[b] = the sum of partial[block][b] over the blocks. out [kBins]
  void (*join)(const float* partial, float* out);
  /// The most threads, a multiple of 32, whose private copies of `bins` floats fit into `bytes` of shared memory.
  int (*threads_that_fit)(int bins, int bytes);
  /// Lane l of a warp reads copies[l * threads + (c + step * l) % threads], of floats in shared memory; threads is a
  /// multiple of 32. How many wavefronts does that take?
  int (*wavefronts)(int step);
};

/// The budget of the first launch, for all blocks together: bin and weight are read once, in whole sectors; there are no
/// bank conflicts. For n = 4 * kBlocks * kThreads.
inline constexpr int kMostSharedBytes = kThreads * kBins * 4 + 256, kMostBarriers = 2, kMostWavefronts = 320 * kBlocks;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "06", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::histogram
