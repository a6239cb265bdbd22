// How a product is cut into work for the persistent blocks of gemm_sm90: the size of tiles, clusters of blocks, and
// which tiles are divided among several blocks.
//
// Tiles rarely fill the last wave of multiprocessors: the gradient of a weight [768, 3072] has 96 tiles of 128 x 192,
// so 36 of an H100's 132 multiprocessors would idle through a sum of 16384 products. Tiles beyond the last whole wave
// are therefore divided (cuda/kernels/gemm_shares.h). Blocks store partial sums, and a second kernel adds them in the
// order of K.
// Read next: cuda/kernels/gemm_sm90.cu.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/kernels/gemm_epilogue.h"
#include "cuda/kernels/gemm_shares.h"

namespace trireme::cuda::sm90 {

// What a multiprocessor reaches (bench/results/gpu_notes.md): FLOPs of tensor cores, and bytes from and to L2.
inline constexpr double kFlopsACycle = 0.95 * 4096, kBytesACycle = 49;
inline constexpr double kLaunchCycles = 4000;
inline constexpr int kLeastSteps = 4;  // of a sum that a cluster takes over

/// A tile of a block and its costs in cycles of a multiprocessor.
struct TileCost {
  Tile90 tile;
  int m, n;
  int blocks;    ///< of a cluster, whose tiles lie beside each other: they share A
  bool turns;    ///< consumers take tiles in turns: one multiplies while the other stores
  double end;    ///< what finishing and storing a tile takes
  double fixed;  ///< of a launch: the first copies, and the last end, where other ends are hidden

  std::int64_t sums() const { return std::int64_t{m} * n; }
  /// For 64 of K.
  double step() const { return std::max(copies(), products()); }
  /// From tile to tile, for sums of so many steps. The producer copies for the next tile while this one is stored.
  double tile_cycles(double steps) const {
    if (turns) return std::max(steps * step(), (steps * step() + end) / 2);
    return std::max(steps * products() + end, steps * copies() + 2 * static_cast<double>(sums()) / kBytesACycle);
  }

 private:
  double products() const { return 2.0 * m * n * 64 / kFlopsACycle; }
  double copies() const {
    const int lines = m / blocks + n;  // of 64 of K
    return 2.0 * 64 * lines / kBytesACycle;
  }
};
inline constexpr std::array<TileCost, 5> kTileCosts = {{
    {Tile90::m256n384, 256, 192, 2, false, 5000, 12000},
    {Tile90::m128n192, 128, 192, 1, true, 13000, 13000},
    {Tile90::m128n256, 128, 256, 1, false, 5500, 5000},
    {Tile90::m128n128, 128, 128, 1, false, 3500, 5000},
    {Tile90::m64n64, 64, 64, 1, false, 2000, 5000},
}};

/// Whether kernels with tiles of this size have these epilogues.
constexpr bool has(Tile90 tile, Epilogues epilogues) {
  if (tile == Tile90::m256n384) return epilogues == Epilogues::simple;
  return tile != Tile90::m128n192 || epilogues != Epilogues::all;
}

/// How many blocks, and clusters of two, run at the same time if a block fills a multiprocessor.
struct Resident {
  int blocks, pairs;
  constexpr int clusters(const TileCost& cost) const { return cost.blocks == 2 ? pairs : blocks; }
};

/// Of gemm_sm90 on the current device, without the multiprocessors that are kept free (cuda/device/persistent.h).
Resident resident_of_gemm();

/// What a cluster computes at once is a tile here too. Tiles 0 to whole - 1 are computed by one cluster each, in waves;
/// those after them are divided.
struct Cut {
  Tile90 tile = Tile90::m64n64;
  int clusters = 0, steps = 0;  ///< steps: of 64 of K, of each tile
  int whole = 0;
  Shares shares{};
  std::int64_t workspace = 0;  ///< floats: of the partial sums, shares.items() for each sharer
  double cycles = 0;
};

/// Divides the tiles of the last wave, if that pays. `usable`: clusters that run at the same time.
inline Cut divided(const TileCost& cost, Cut cut, int usable) {
  const std::int64_t tiles = cut.whole, waves = tiles / usable, rest = tiles - waves * usable;
  if (rest == 0 || cut.steps < 2 * kLeastSteps) return cut;
  const int sharers = static_cast<int>(std::clamp<std::int64_t>(rest * cut.steps / kLeastSteps, 1, usable));
  if (sharers <= rest) return cut;
  const Shares shares(static_cast<int>(rest), cut.steps, sharers, kLeastSteps);
  const double bytes = 4 * static_cast<double>(cost.sums()) / kBytesACycle;  // of a partial sum, in cycles
  const double partials = static_cast<double>(sharers + rest) / usable;      // of a cluster
  const double added = kLaunchCycles + 8 * partials * bytes;                 // the loads wait for each other
  const double cycles =
      static_cast<double>(waves) * cost.tile_cycles(cut.steps) + shares.length() * cost.step() + 1.5 * bytes + added;
  if (cycles > 0.95 * cut.cycles) return cut;  // the costs are estimates
  cut.whole = static_cast<int>(tiles - rest);
  cut.shares = shares;
  cut.clusters = waves > 0 ? usable : shares.sharers();
  cut.workspace = std::int64_t{shares.items()} * shares.sharers() * cost.blocks * cost.sums();
  cut.cycles = cycles;
  return cut;
}

/// The cut with tiles of one size.
inline Cut cut_with(const TileCost& cost, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                    int usable, bool may_divide) {
  const std::int64_t tile_n = std::int64_t{cost.n} * cost.blocks;
  const std::int64_t tiles = (m + cost.m - 1) / cost.m * ((n + tile_n - 1) / tile_n) * batch;
  const std::int64_t begun = (tiles + usable - 1) / usable;  // waves, with the last one that is not whole
  Cut cut;
  cut.tile = cost.tile;
  cut.steps = static_cast<int>((k + 63) / 64);
  cut.whole = static_cast<int>(tiles);
  cut.clusters = static_cast<int>(std::min<std::int64_t>(tiles, usable));
  cut.cycles = static_cast<double>(begun) * cost.tile_cycles(cut.steps) + cost.fixed;
  return may_divide ? divided(cost, cut, usable) : cut;
}

/// The cut that takes the fewest cycles, with tiles of any size or of size `tile`. Where kernels with those tiles do
/// not have the epilogues, or clusters cannot run, the next smaller ones take their place.
inline Cut cut(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, const Resident& resident,
               bool may_divide, Epilogues epilogues, Tile90 tile = Tile90::automatic) {
  Cut best;
  for (const TileCost& cost : kTileCosts) {
    const int usable = resident.clusters(cost);
    const bool wanted = tile == Tile90::automatic || cost.tile <= tile;
    if (usable == 0 || !has(cost.tile, epilogues) || !wanted) continue;
    const Cut other = cut_with(cost, m, n, k, batch, usable, may_divide);
    if (best.clusters == 0 || other.cycles < best.cycles) best = other;
    if (tile != Tile90::automatic) break;
  }
  return best;
}

}  // namespace trireme::cuda::sm90
