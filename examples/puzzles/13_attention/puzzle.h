// Puzzle 13, attention with an online softmax: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::attention {

/// A block has kThreads threads, one for each query. Keys and values come kTile at a time. Each has kDim numbers.
inline constexpr int kThreads = 64, kTile = 32, kDim = 16;
inline constexpr float kScale = 0.25F;  ///< 1 / sqrt(kDim), of the scores

struct Answers {
  /// out[i] = sum over j <= i of w[j] v[j], where w is the softmax of kScale q[i] k[j] over j <= i. All are [t, kDim].
  void (*attend)(const float* q, const float* k, const float* v, float* out, int t);
  /// Bytes of the scores [t, t] in f32, written once and read once, if a kernel stored them.
  long (*score_bytes)(int t);
  /// Tiles of keys that all blocks together need. t is a multiple of kThreads.
  int (*tiles)(int t);
};

/// The budget: each block reads the keys and values that its queries see, once, in whole sectors.
inline constexpr int kMostSharedBytes = 2 * kTile * kDim * 4;
constexpr int most_barriers(int t) { return 2 * ((t + kTile - 1) / kTile); }

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "13", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::attention
