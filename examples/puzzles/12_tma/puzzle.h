// Puzzle 12, TMA with mbarriers: the kernel to write, how it is launched, and its budget.
// Read next: README.md beside this file, then learner.cu.
#pragma once

#include "cuda/device/tensor_map.h"
#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles::tma {

/// A tile of x has kRows rows of kColumns bf16: 128 bytes a row, kTileBytes in all. A block has a strip of kColumns
/// columns, and memory for kStages tiles. Threads 0 to kColumns - 1 have a column each; thread kColumns, in a warp of its
/// own, starts the copies.
inline constexpr int kRows = 16, kColumns = 64, kStages = 3, kThreads = kColumns + 32;
inline constexpr int kTileBytes = kRows * kColumns * 2;

/// Element (row, column) of a tile in shared memory. TMA writes the eight 16-byte pieces of a row in an order that
/// depends on the row, the 128-byte swizzle: so columns do not lie in one bank.
__device__ __forceinline__ const bf16* element(const std::byte* tile, int row, int column) {
  const std::uint32_t begin = cuda::shared_address(tile);
  const std::uint32_t at = begin + static_cast<std::uint32_t>(128 * row + 2 * column);
  return reinterpret_cast<const bf16*>(tile + (cuda::swizzled(cuda::Swizzle::b128, at) - begin));
}

struct Answers {
  /// y[c] = the sum of column c of x [rows, columns], which `map` describes. One block for each strip of columns.
  void (*sums)(cuda::TensorMap map, float* y, int rows, int columns);
  /// The parity with which a thread waits at full[tile % kStages] for tile `tile`, counted from 0.
  int (*parity)(int tile);
  /// The bytes that an mbarrier must expect for a tile of which only `rows` rows lie inside of x.
  int (*bytes)(int rows);
};

/// The budget: x is read once; all kStages tiles are on their way at the same time; one barrier of all threads.
inline constexpr int kMostBarriers = 1;

void grade(const Answers& answers, Grading& grading);

inline Answer answer(std::string name, Answers answers, std::string expected = {}) {
  return answer_to(
      "12", std::move(name), [answers](Grading& grading) { grade(answers, grading); }, std::move(expected));
}

}  // namespace trireme::puzzles::tma
