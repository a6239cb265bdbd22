// Levels 3 and 4: the kernels in use. cuda/kernels/gemm_grouped_sm80.cu numbers the tiles over all experts. It starts
// as many blocks as the device holds, and each finds its tiles from the offsets: one launch, no padding beyond the last
// tile of an expert, no copies, and the host need not know the router's result. cuda/kernels/gemm_grouped_sm90.cu does
// the same with the tiles of gemm_sm90: 128 x 256, TMA, wgmma. This file also has the cost of each level.
// Multiprocessors take tiles in turns, so a launch takes as long as the one with the most tiles; the time of a tile is
// counted as in examples/cuda_lab/gemm/ladder.h.
// Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/kernels/gemm.h"
#include "examples/cuda_lab/gemm/ladder.h"
#include "examples/cuda_lab/grouped/ladder.h"

namespace trireme::cuda::lab::grouped {

namespace {

GroupedGemm<bf16, bf16> general(const Problem& p) {
  Gemm<bf16, bf16> product = {Form::nt, p.rows, p.n, p.k, p.x, p.k, p.w, p.k, p.y, p.n};
  product.b_stride = std::int64_t{p.n} * p.k;
  return {product, p.groups, p.offsets};
}

}  // namespace

void shipped_sm80(const Problem& p, Stream stream) { grouped_gemm_sm80(general(p), stream); }
void shipped_sm90(const Problem& p, Stream stream) { grouped_gemm_sm90(general(p), stream); }

namespace {

/// A block's tile, and what it needs for a step along K.
struct Tile {
  double m, n, k;
  Cost step;
};
// Of gemm_sm80: the cost of level 7 of the product's ladder, and that of its smaller tile, four warps of 32 x 32 whose
// 16 of K take four ldmatrix.x4. Of gemm_sm90: its tile of 128 x 256.
constexpr Tile kLarge80 = {
    128, 128, 32, {Unit::tensor_core, 2.0 * 128 * 128 * 32, 4 * 2 * 8 * 4, 2 * (128 + 128) * 32}};
constexpr Tile kSmall80 = {64, 64, 32, {Unit::tensor_core, 2.0 * 64 * 64 * 32, 4 * 2 * 4 * 4, 2 * (64 + 64) * 32}};
constexpr Tile kLarge90 = {128, 256, 64, {Unit::tensor_core, 2.0 * 128 * 256 * 64, 2 * 4 * 80, 2 * (128 + 256) * 64}};

double tiles_of(const Problem& p, double rows, const Tile& tile) {
  return std::ceil(rows / tile.m) * std::ceil(p.n / tile.n);
}

/// One launch: every tile once through all of K.
MemoryCost launch_of(const Problem& p, double tiles, double resident, double bytes, const Tile& tile) {
  const double steps = std::ceil(p.k / tile.k);
  return cost_of({.blocks = tiles,
                  .resident = resident,
                  .bytes = bytes,
                  .waits = 1,
                  .barriers = steps,
                  .wavefronts = 0,
                  .products = steps * clocks(tile.step).slowest()});
}

/// x and y of so many rows, and so many experts' matrices.
double bytes_of(const Problem& p, double rows, double matrices) {
  return 2 * (rows * (p.k + p.n) + matrices * p.n * p.k);
}

MemoryCost launches_cost(const Problem& p) {
  MemoryCost cost = {};
  for (int g = 0; g < p.groups; ++g) {
    const double rows = p.rows_of(g);
    if (rows == 0) continue;
    const Tile& tile = tiles_of(p, rows, kLarge80) >= 64 ? kLarge80 : kSmall80;  // as gemm_sm80 chooses
    cost = cost + launch_of(p, tiles_of(p, rows, tile), 2, bytes_of(p, rows, 1), tile);
  }
  return cost;
}

/// One row per block, its offsets and then itself; wavefronts of 16-byte loads and stores.
MemoryCost copy_cost(const Problem& p, double written, double width) {
  const double blocks = 1.0 * p.groups * p.largest() * std::ceil(width / 1024);
  return cost_of({.blocks = blocks,
                  .resident = 16,
                  .bytes = 2 * width * (p.rows + written),
                  .waits = 2,
                  .barriers = 0,
                  .wavefronts = 2 * 2 * width / 128});
}

MemoryCost padded_cost(const Problem& p) {
  const double rows = 1.0 * p.groups * p.largest();
  return copy_cost(p, rows, p.k) +
         launch_of(p, p.groups * tiles_of(p, p.largest(), kLarge80), 2, bytes_of(p, rows, p.groups), kLarge80) +
         copy_cost(p, p.rows, p.n);
}

MemoryCost grouped_cost(const Problem& p, const Tile& tile, double resident) {
  double tiles = 0;
  for (int g = 0; g < p.groups; ++g) tiles += tiles_of(p, p.rows_of(g), tile);
  return launch_of(p, std::max(tiles, 1.0), resident, bytes_of(p, p.rows, p.groups), tile);
}

constexpr std::array all = {
    MemoryLevel<Problem>{"launch_an_expert", "a product for each", &launch_an_expert, &launches_cost},
    MemoryLevel<Problem>{"padded", "a batch, all as long as the longest", &padded, &padded_cost},
    MemoryLevel<Problem>{"grouped_sm80", "tiles of all experts in one launch", &shipped_sm80,
                         [](const Problem& p) { return grouped_cost(p, kLarge80, 2); }},
    MemoryLevel<Problem>{"grouped_sm90", "128 x 256, TMA, wgmma", &shipped_sm90,
                         [](const Problem& p) { return grouped_cost(p, kLarge90, 1); }},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::grouped
