// Compiled for AVX-512 BF16, and called only where the processor has it: nothing but the declarations and intrinsics is
// included, so that no function that other files share is compiled for it.
#include "core/cpu/bf16_tiles.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace trireme::cpu {
namespace {

__m512bh as_pairs(__m512i words) { return reinterpret_cast<__m512bh>(words); }

template <int rows>
void product(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  __m512 sum[rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (std::int64_t k = 0; k < pairs; ++k, a += rows, b += pair_tile_columns) {
    const __m512bh left = as_pairs(_mm512_loadu_si512(b)), right = as_pairs(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      const __m512bh repeated = as_pairs(_mm512_set1_epi32(static_cast<int>(a[i])));
      sum[i][0] = _mm512_dpbf16_ps(sum[i][0], repeated, left);
      sum[i][1] = _mm512_dpbf16_ps(sum[i][1], repeated, right);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    _mm512_storeu_ps(tile + i * pair_tile_columns, sum[i][0]);
    _mm512_storeu_ps(tile + i * pair_tile_columns + 16, sum[i][1]);
  }
}

using Product = void (*)(std::int64_t, const std::uint32_t*, const std::uint32_t*, float*);
constexpr Product products[pair_tile_rows] = {product<1>,  product<2>,  product<3>,  product<4>, product<5>,
                                              product<6>,  product<7>,  product<8>,  product<9>, product<10>,
                                              product<11>, product<12>, product<13>, product<14>};

}  // namespace

void pair_product(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  products[rows - 1](pairs, a, b, tile);
}

}  // namespace trireme::cpu

#else

namespace trireme::cpu {

void pair_product(std::int64_t, std::int64_t, const std::uint32_t*, const std::uint32_t*, float*) {
  __builtin_trap();  // no processor of this kind has the unit: processor.cpp never names it
}

}  // namespace trireme::cpu

#endif
