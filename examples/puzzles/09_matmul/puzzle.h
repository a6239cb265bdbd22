// Puzzle 9, a matrix product in four steps: the kernels to write, how they are launched, and their budgets.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::matmul {

/// c = a b. a [m, k], b [k, n], c [m, n]
using Kernel = void(const float* a, const float* b, float* c, int m, int n, int k);

/// All blocks have 16 x 16 threads (threadIdx.x, threadIdx.y). A block has the elements of c from row side * blockIdx.y
/// and column side * blockIdx.x on: 16 x 16 of them in the first two steps, 64 x 64 in the others, of which a thread has
/// kMine x kMine. Shared memory has tiles of kDepth columns of a, and kDepth rows of b.
inline constexpr int kThreads = 16, kTile = 16, kBlock = 64, kMine = 4, kDepth = 16;

struct Answers {
  Kernel* naive;      ///< one element a thread, without shared memory
  Kernel* tiles;      ///< one element a thread, of tiles in shared memory
  Kernel* registers;  ///< kMine x kMine elements a thread
  Kernel* vectors;    ///< the same, with loads and stores of 16 bytes; n and k are multiples of 4
  /// How many floats of a and b all blocks together read from global memory, if a block has `side` x `side` elements of c
  /// and reads what it needs once. m and n are multiples of side.
  double (*floats_read)(int m, int n, int k, int side);
  /// Products for each float that a thread loads from shared memory, if it has mine x mine elements of c.
  double (*products_per_load)(int mine);
};

/// The budgets of shared memory, for each block and each kDepth of k. A, b and c move in whole sectors, a and b as often as
/// floats_read says; there are no bank conflicts.
inline constexpr int kMostBarriers = 2;
inline constexpr int kMostTileWavefronts = 280, kMostTileBytes = 2304;
inline constexpr int kMostWavefronts = 1100, kMostBytes = 9216;
inline constexpr int kMostVectorAccesses = 300;  ///< loads and stores by warps

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "09", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::matmul
