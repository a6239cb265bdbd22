// How a product is cut into work for the persistent blocks of gemm_sm90: the size of tiles, and which tiles are divided
// among several blocks.
//
// Tiles rarely fill the last wave of multiprocessors: the gradient of a weight [768, 3072] has 48 tiles of 256 x 192,
// so 84 of an H100's 132 multiprocessors would idle through a sum of 16384 products. Tiles beyond the last whole wave
// are therefore divided (Stream-K, Osama et al. 2023, section 4): the steps of their sums, one tile after the other,
// are dealt out evenly. Blocks store partial sums, and a second kernel adds them in the order of K. Which sums are
// added depends on shapes and the number of blocks only, so bits repeat from run to run. Read next:
// cuda/kernels/gemm_sm90.cu.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/kernels/gemm.h"

namespace trireme::cuda::sm90 {

inline constexpr double kFlopsACycle = 4096;  // of a multiprocessor's tensor cores
inline constexpr double kBytesACycle = 32;    // to and from L2, of a multiprocessor: an estimate

/// A tile and its costs in cycles of a multiprocessor.
struct TileCost {
  Tile90 tile;
  int m, n;
  /// Cycles at the end of a tile in which tensor cores idle: storing 16-bit results through shared memory, and
  /// latencies. An estimate.
  double end;

  std::int64_t bytes() const { return std::int64_t{4} * m * n; }  ///< of its sums in f32
  /// For `steps` of 64 of K. The producer copies for the next tile during the end of this one.
  double cycles(std::int64_t steps) const {
    return std::max(static_cast<double>(steps) * copies(), static_cast<double>(steps) * products() + end);
  }
  double step() const { return std::max(copies(), products()); }

 private:
  double products() const { return 2.0 * m * n * 64 / kFlopsACycle; }
  double copies() const { return 2.0 * (m + n) * 64 / kBytesACycle; }
};
inline constexpr std::array<TileCost, 4> kTileCosts = {{
    {Tile90::m256n192, 256, 192, 2000},
    {Tile90::m128n256, 128, 256, 1400},
    {Tile90::m128n128, 128, 128, 1000},
    {Tile90::m64n64, 64, 64, 700},
}};
inline constexpr double kLaunchCycles = 4000;
inline constexpr int kLeastSteps = 4;  // of a sum that a block takes over

/// Tiles 0 to whole - 1 are computed by one block each, in waves; the `divided` others by `sharers` blocks together.
struct Cut {
  Tile90 tile = Tile90::m64n64;
  int blocks = 0, steps = 0;  ///< steps: of 64 of K, of each tile
  int whole = 0, divided = 0, sharers = 0;
  std::int64_t workspace = 0;  ///< floats: two partial sums of each sharer, as its share meets at most two tiles
  double cycles = 0;
};

/// The first step of a sharer's share. Steps are numbered over all divided tiles.
__host__ __device__ constexpr std::int64_t share_begin(int sharer, int divided, int steps, int sharers) {
  return std::int64_t{sharer} * divided * steps / sharers;
}

/// The cut with tiles of one size. `usable`: multiprocessors. Tiles are divided if `may_divide` and it pays.
inline Cut cut_with(const TileCost& cost, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                    int usable, bool may_divide) {
  const std::int64_t tiles = (m + cost.m - 1) / cost.m * ((n + cost.n - 1) / cost.n) * batch;
  Cut cut;
  cut.tile = cost.tile;
  cut.steps = static_cast<int>((k + 63) / 64);
  cut.whole = static_cast<int>(tiles);
  cut.blocks = static_cast<int>(std::min<std::int64_t>(tiles, usable));
  const double tile_cycles = cost.cycles(cut.steps);
  const std::int64_t begun = (tiles + usable - 1) / usable;  // waves, with the last one that is not whole
  cut.cycles = static_cast<double>(begun) * tile_cycles;
  if (!may_divide || cut.steps < 2 * kLeastSteps) return cut;

  const std::int64_t waves = tiles / usable, rest = tiles - waves * usable;
  if (rest == 0) return cut;
  const int sharers = static_cast<int>(std::clamp<std::int64_t>(rest * cut.steps / kLeastSteps, 1, usable));
  if (sharers <= rest) return cut;
  const std::int64_t share = (rest * cut.steps + sharers - 1) / sharers;
  const auto partials = static_cast<double>(sharers + rest), bytes = static_cast<double>(cost.bytes());
  const double stored = 1.5 * bytes / kBytesACycle,
               added = kLaunchCycles + cost.end + partials * bytes / (kBytesACycle * usable);
  const double cycles =
      static_cast<double>(waves) * tile_cycles + static_cast<double>(share) * cost.step() + stored + added;
  if (cycles > 0.95 * cut.cycles) return cut;  // the costs are estimates
  cut.whole = static_cast<int>(tiles - rest);
  cut.divided = static_cast<int>(rest);
  cut.sharers = sharers;
  cut.blocks = waves > 0 ? usable : sharers;
  cut.workspace = std::int64_t{2} * sharers * cost.m * cost.n;
  cut.cycles = cycles;
  return cut;
}

/// The cut that takes the fewest cycles, with tiles of any size or of size `tile`. `wide`: the product's epilogue is one
/// that tiles of 256 x 192 have (epilogues_of in gemm_store.h); otherwise 128 x 256 takes their place.
inline Cut cut(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, int usable, bool may_divide,
               bool wide, Tile90 tile = Tile90::automatic) {
  if (tile == Tile90::m256n192 && !wide) tile = Tile90::m128n256;
  Cut best;
  for (const TileCost& cost : kTileCosts) {
    if (cost.tile == Tile90::m256n192 && !wide) continue;
    if (tile != Tile90::automatic && tile != cost.tile) continue;
    const Cut other = cut_with(cost, m, n, k, batch, usable, may_divide);
    if (best.blocks == 0 || other.cycles < best.cycles) best = other;
  }
  return best;
}

}  // namespace trireme::cuda::sm90
