// Emulates the tiles of AMX in plain C++, so that packing, edges and the order of instructions are tested on every
// machine.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/cpu/amx_tiles.h"

namespace trireme::cpu {
namespace {

using Tile = std::array<std::array<std::uint32_t, 16>, 16>;  // 16 rows of 64 bytes

float low(std::uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float high(std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000U); }

struct Imitation {
  Tile* tiles;

  template <int t>
  void zero() {
    tiles[t] = {};
  }
  template <int t>
  void load_sum(const float* from) {
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 16; ++n)
        tiles[t][m][n] = std::bit_cast<std::uint32_t>(from[m * amx_tile_columns + n]);
  }
  template <int t>
  void load(const std::uint32_t* from) {
    for (auto& row : tiles[t]) {
      std::copy_n(from, 16, row.begin());
      from += 16;
    }
  }
  /// Intel SDM, TDPBF16PS: for each row m, pair k and column n, sum += a_odd b_odd after sum += a_even b_even.
  template <int sum, int a, int b>
  void dot() {
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t k = 0; k < 16; ++k) {
        const std::uint32_t left = tiles[a][m][k];
        for (std::size_t n = 0; n < 16; ++n) {
          const std::uint32_t right = tiles[b][k][n];
          float value = std::bit_cast<float>(tiles[sum][m][n]);
          value = std::fma(low(left), low(right), value);
          value = std::fma(high(left), high(right), value);
          tiles[sum][m][n] = std::bit_cast<std::uint32_t>(value);
        }
      }
    }
  }
  template <int t>
  void store(float* to) {
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 16; ++n) to[m * amx_tile_columns + n] = std::bit_cast<float>(tiles[t][m][n]);
  }
};

}  // namespace

void software_amx_product(std::int64_t groups, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  std::array<Tile, 8> tiles;
  tile_product_of<false>(Imitation{tiles.data()}, groups, a, b, tile);
}
void software_amx_product_add(std::int64_t groups, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  std::array<Tile, 8> tiles;
  tile_product_of<true>(Imitation{tiles.data()}, groups, a, b, tile);
}

}  // namespace trireme::cpu
