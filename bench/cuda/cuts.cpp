// Prints how cuda/kernels/gemm_cut.h cuts products for 132 multiprocessors, and the cycles that it expects. A line of
// input "m n k may_divide wide" (the last two 0 or 1) gives a line "tile_m tile_n waves divided cycles". Waves: of
// tiles, with a fraction. Divided: how many tiles are, among blocks. scripts/gpu/implied_products.py compiles and runs
// it.
#include <cstdio>
#include <iostream>

#include "cuda/kernels/gemm_cut.h"

int main() {
  using namespace trireme::cuda;
  using namespace trireme::cuda::sm90;
  std::int64_t m = 0, n = 0, k = 0;
  int may_divide = 0, wide = 0;
  constexpr int multiprocessors = 132;
  while (std::cin >> m >> n >> k >> may_divide >> wide) {
    const Cut c = cut(m, n, k, 1, {multiprocessors, multiprocessors / 2}, may_divide != 0,
                      wide != 0 ? Epilogues::simple : Epilogues::all);
    for (const TileCost& cost : kTileCosts)
      if (cost.tile == c.tile)
        std::printf("%d %d %.2f %d %.0f\n", cost.m, cost.n * cost.blocks,
                    static_cast<double>((c.whole + c.shares.tiles()) * cost.blocks) / multiprocessors, c.shares.tiles(),
                    c.cycles);
  }
}
