// ldmatrix, stmatrix and mma.sync. Layouts: cuda/emu/matrix.h.
#include <cstring>

#include "cuda/emu/matrix.h"
#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"

namespace trireme::cuda::emu {

namespace {

struct MatrixArguments {
  std::uint32_t* registers;
  std::byte* row;
};

/// Swaps roles: register halves (row r, columns 2t and 2t + 1) of matrix `m` for all lanes.
template <class Move>
void for_each_pair(int matrices, Move&& move) {
  for (int m = 0; m < matrices; ++m)
    for (int lane = 0; lane < 32; ++lane) move(m, lane, lane / 4, lane % 4 * 2);
}

const MatrixArguments& of(void* const* arguments, int lane) {
  return *static_cast<const MatrixArguments*>(arguments[lane]);
}

void count_traffic(const Block& block, int matrices, bool writes, void* const* arguments, const void* pc) {
  for (int m = 0; block.traffic() != nullptr && m < matrices; ++m) {
    std::array<const std::byte*, 8> rows{};
    for (int row = 0; row < 8; ++row) rows[static_cast<std::size_t>(row)] = of(arguments, 8 * m + row).row;
    block.traffic()->matrix(rows, writes, pc);
  }
}

/// A lane of the running warp.
const Fiber& lane_fiber(const Block& block, int lane) { return block.fiber(block.fiber().index / 32 * 32 + lane); }

float value(std::uint32_t packed, int half, Half type) {
  const auto bits = static_cast<std::uint16_t>(packed >> (16 * half));
  if (type == Half::bf16) {
    bf16 x;
    x.bits = bits;
    return static_cast<float>(x);
  }
  f16 x;
  x.bits = bits;
  return static_cast<float>(x);
}

}  // namespace

void ldmatrix(std::uint32_t* registers, int matrices, bool transpose, const void* row, Site site) {
  Block& block = *running_block;
  if (block.fiber().index % 32 < 8 * matrices) block.check_shared(row, 16, 16, "ldmatrix", site);
  MatrixArguments mine{registers, static_cast<std::byte*>(const_cast<void*>(row))};
  const void* const pc = __builtin_return_address(0);
  block.meet_warp(~0U, "ldmatrix", site, &mine, [&](void* const* all) {
    count_traffic(block, matrices, false, all, pc);
    for_each_pair(matrices, [&](int m, int lane, int r, int c) {
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int from_row = transpose ? c + i : r, column = transpose ? r : c + i;
        const std::byte* const from = of(all, 8 * m + from_row).row + 2 * column;
        const std::size_t bytes = transpose ? 2 : i == 0 ? 4 : 0;  // two columns of a row are neighbours
        if (block.race() != nullptr && bytes > 0)
          block.race()->access_by(lane_fiber(block, lane), from, bytes, AccessKind::ldmatrix, pc);
        std::memcpy(&pair[i], from, 2);
      }
      of(all, lane).registers[m] = pair[0] | (static_cast<std::uint32_t>(pair[1]) << 16);
    });
  });
}

void stmatrix(const std::uint32_t* registers, int matrices, void* row, Site site) {
  Block& block = *running_block;
  if (block.fiber().index % 32 < 8 * matrices) block.check_shared(row, 16, 16, "stmatrix", site);
  MatrixArguments mine{const_cast<std::uint32_t*>(registers), static_cast<std::byte*>(row)};
  const void* const pc = __builtin_return_address(0);
  block.meet_warp(~0U, "stmatrix", site, &mine, [&](void* const* all) {
    count_traffic(block, matrices, true, all, pc);
    for_each_pair(matrices, [&](int m, int lane, int r, int c) {
      std::byte* const to = of(all, 8 * m + r).row + 2 * c;
      if (block.race() != nullptr) block.race()->access_by(lane_fiber(block, lane), to, 4, AccessKind::stmatrix, pc);
      std::memcpy(to, &of(all, lane).registers[m], 4);
    });
  });
}

void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, Half type, Site site) {
  struct Arguments {
    float* d;
    const std::uint32_t *a, *b;
  } mine{d, a, b};
  running_block->meet_warp(~0U, "mma.sync", site, &mine, [&](void* const* all) {
    float left[16][16], right[16][8], sum[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& x = *static_cast<const Arguments*>(all[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 8; ++i)
        left[g + 8 * (i / 2 % 2)][2 * t + 8 * (i / 4) + i % 2] = value(x.a[i / 2], i % 2, type);
      for (int i = 0; i < 4; ++i) right[2 * t + 8 * (i / 2) + i % 2][g] = value(x.b[i / 2], i % 2, type);
      for (int i = 0; i < 4; ++i) sum[g + 8 * (i / 2)][2 * t + i % 2] = x.d[i];
    }
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 8; ++n) sum[m][n] += left[m][k] * right[k][n];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& x = *static_cast<const Arguments*>(all[lane]);
      for (int i = 0; i < 4; ++i) x.d[i] = sum[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
    }
  });
}

}  // namespace trireme::cuda::emu
