// Emulates the tiles of AMX in plain C++, so that packing, edges and the order of instructions are tested on every
// machine.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

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
  void load_sum(const float* from, std::int64_t stride) {
    for (auto& row : tiles[t]) {
      std::memcpy(row.data(), from, sizeof row);
      from += stride;
    }
  }
  template <int t>
  void load(const void* from, std::int64_t stride) {
    const auto* at = static_cast<const std::byte*>(from);
    for (auto& row : tiles[t]) {
      std::memcpy(row.data(), at, sizeof row);
      at += stride;
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
  void store(float* to, std::int64_t stride) {
    for (const auto& row : tiles[t]) {
      std::memcpy(to, row.data(), sizeof row);
      to += stride;
    }
  }
};

}  // namespace

void software_amx_product(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to,
                          std::int64_t stride) {
  std::array<Tile, 8> tiles;
  tile_product_of<false>(Imitation{tiles.data()}, groups, a, b, to, stride);
}
void software_amx_product_add(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to,
                              std::int64_t stride) {
  std::array<Tile, 8> tiles;
  tile_product_of<true>(Imitation{tiles.data()}, groups, a, b, to, stride);
}

}  // namespace trireme::cpu
