// Puzzle 11, cp.async with double buffering: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::pipeline {

/// A block has kThreads threads and computes kTile x kTile elements of c. A piece is what one cp.async copies: four
/// floats, 16 bytes. A tile of a or of b has 64 pieces.
inline constexpr int kTile = 16, kThreads = 128, kPiece = 4;

struct Answers {
  /// c = a b. a [m, k], b [k, n], c [m, n]; k and n are multiples of kPiece. The grid is (tiles of n, tiles of m).
  void (*multiply)(const float* a, const float* b, float* c, int m, int n, int k);
  /// Bytes that each multiprocessor must have in flight to be given its share of `gb_per_second` (10^9 bytes a second)
  /// of the memory's bandwidth, if a load takes `nanoseconds`.
  double (*bytes_in_flight)(double gb_per_second, double nanoseconds, int multiprocessors);
};

/// The budget: a and b are read once by each block that needs them; two buffers; one barrier for each kTile of k; and
/// while a block reads its tiles, the next ones are being copied, except for the last.
inline constexpr int kMostSharedBytes = 2 * 2 * kTile * kTile * 4;
constexpr int steps(int k) { return (k + kTile - 1) / kTile; }
constexpr std::uint64_t most_barriers(int k) { return static_cast<std::uint64_t>(steps(k)); }

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "11", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::pipeline
