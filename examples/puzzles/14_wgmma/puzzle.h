// Puzzle 14, a wgmma tile: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::wgmma {

/// A block is one warp group, kThreads threads, and computes kM x kN elements of c. It takes kStep of k at a time: a row
/// of an operand in shared memory has kStep bf16, 128 bytes. The launch gives kSharedBytes of dynamic shared memory.
inline constexpr int kM = 64, kN = 32, kStep = 64, kThreads = 128;
inline constexpr int kBytesA = kM * kStep * 2, kBytesB = kN * kStep * 2, kSharedBytes = kBytesA + kBytesB;

struct Answers {
  /// c [m, n] = a [m, k] times the transpose of b [n, k]; n is even. The grid is (tiles of n, tiles of m).
  void (*multiply)(const bf16* a, const bf16* b, float* c, int m, int n, int k);
  /// The descriptor of an operand whose rows have 128 bytes, K-major, in the 128-byte swizzle, that begins at `address`.
  std::uint64_t (*descriptor)(std::uint32_t address);
  /// The element of the tile [kM, kN] that sum `i` (0 to kN / 2 - 1) of a thread is: row * kN + column.
  int (*place)(int thread, int i);
};

/// The budget: a and b are read once by each block that needs them; c is written in whole sectors; one barrier for each
/// kStep of k; no bank conflicts.
constexpr std::uint64_t most_barriers(int k) { return static_cast<std::uint64_t>((k + kStep - 1) / kStep); }

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "14", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::wgmma
