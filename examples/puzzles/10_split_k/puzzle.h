// Puzzle 10, split-K in a fixed order: the kernels to write, how they are launched, and their budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::split_k {

/// `multiply` has a grid of (tiles of n, tiles of m, parts) blocks of kTile x kTile threads; `join` has enough blocks of
/// kJoinThreads threads for one element each.
inline constexpr int kTile = 16, kJoinThreads = 128;

/// Part p sums k from p * length to the end of a, or to (p + 1) * length if that comes first. The last parts may be
/// empty.
__host__ __device__ constexpr int length(int k, int parts) {
  const int tiles = (k + kTile - 1) / kTile;
  return (tiles + parts - 1) / parts * kTile;
}

struct Answers {
  /// partial[p] = a b, summed over the k of part p. a [m, k], b [k, n], partial [parts, m, n]
  void (*multiply)(const float* a, const float* b, float* partial, int m, int n, int k);
  /// c = partial[0] + partial[1] + ..., always in one order. partial [parts, count], c [count]
  void (*join)(const float* partial, float* c, int count, int parts);
  /// Blocks of `multiply`.
  int (*blocks)(int m, int n, int parts);
  /// Sectors that `partial` costs: written once and read once. m and n are multiples of 16.
  long (*sectors)(int m, int n, int parts);
};

/// The budget. Of `multiply`: each block reads its rows of a and its columns of b once. Of `join`: whole sectors, once.
inline constexpr int kMostSharedBytes = 2 * kTile * kTile * 4;
constexpr std::uint64_t most_barriers(int k, int parts) {
  return static_cast<std::uint64_t>(2 * length(k, parts) / kTile);
}

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "10", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::split_k
