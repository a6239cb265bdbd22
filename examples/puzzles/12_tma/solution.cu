// Puzzle 12: a solution.
#include "examples/puzzles/12_tma/puzzle.h"

namespace trireme::puzzles::tma {
namespace {

using namespace cuda;

int parity(int tile) { return tile / kStages % 2; }
int bytes(int) { return kTileBytes; }  // zeros for rows outside are written, too

/// Where a tile lies, and the phase of the stage's mbarriers.
struct Stage {
  std::byte* tile;
  std::uint64_t *full, *empty;
  std::uint32_t phase;
};

__global__ void sums(const __grid_constant__ TensorMap map, float* y, int rows, int columns) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, full, kStages);
  TRIREME_SHARED(std::uint64_t, empty, kStages);
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kColumns;
  const int tiles = (rows + kRows - 1) / kRows;
  const auto stage_of = [&](int tile) {
    const int s = tile % kStages;
    return Stage{memory + s * kTileBytes, full + s, empty + s, static_cast<std::uint32_t>(tile / kStages % 2)};
  };
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full + s, 1);
      mbarrier_init(empty + s, kColumns);
    }
    fence_mbarrier_init();
  }
  sync_threads();

  for (int tile = 0; thread == kColumns && tile < tiles; ++tile) {
    const Stage stage = stage_of(tile);
    mbarrier_wait(stage.empty, stage.phase ^ 1U);  // passes at once for the first tile of each stage
    mbarrier_arrive_expect(stage.full, kTileBytes);
    tma_load_2d(stage.tile, map, first, tile * kRows, stage.full);
  }
  if (thread >= kColumns) return;
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const Stage stage = stage_of(tile);
    mbarrier_wait(stage.full, stage.phase);
    for (int row = 0; row < kRows; ++row) sum += to_float(*element(stage.tile, row, thread));
    mbarrier_arrive(stage.empty);
  }
  if (first + thread < columns) y[first + thread] = sum;
}

const Registered registered(answer("solution", {sums, parity, bytes}));

}  // namespace
}  // namespace trireme::puzzles::tma
