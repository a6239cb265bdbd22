// Compiled for AVX-512 BF16, and called only if the processor has it. Includes only declarations and intrinsics, so
// that no function shared with other files is compiled for it.
#include "core/cpu/bf16_tiles.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace trireme::cpu {
namespace {

__m512bh as_pairs(__m512i words) { return reinterpret_cast<__m512bh>(words); }

/// 16 values of bf16. GCC 12 warns that these intrinsics, in their forms without a mask, use uninitialised values.
__m512 widen(const std::uint16_t* bits) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
}

template <bool add, int rows>
void product(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  __m512 sum[rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    sum[i][0] = add ? _mm512_loadu_ps(tile + i * pair_tile_columns) : _mm512_setzero_ps();
    sum[i][1] = add ? _mm512_loadu_ps(tile + i * pair_tile_columns + 16) : _mm512_setzero_ps();
  }
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
template <bool add>
constexpr Product products[pair_tile_rows] = {product<add, 1>,  product<add, 2>,  product<add, 3>,  product<add, 4>,
                                              product<add, 5>,  product<add, 6>,  product<add, 7>,  product<add, 8>,
                                              product<add, 9>,  product<add, 10>, product<add, 11>, product<add, 12>,
                                              product<add, 13>, product<add, 14>};

// store_rounded(). Not inlined there: a global function with AVX could be called by code for any processor.
[[gnu::noinline]] void round_rows(std::int64_t rows, const float* tile, const std::uint16_t* bias, std::uint16_t* to,
                                  std::int64_t stride) {
  const __m512 nothing = _mm512_set1_ps(-0.0F);  // 0 + -0 is 0, and -0 + -0 is -0
  const __m512 left = bias == nullptr ? nothing : widen(bias), right = bias == nullptr ? nothing : widen(bias + 16);
  for (std::int64_t i = 0; i < rows; ++i, tile += pair_tile_columns, to += stride) {
    const __m512 a = _mm512_add_ps(_mm512_loadu_ps(tile), left), b = _mm512_add_ps(_mm512_loadu_ps(tile + 16), right);
    _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
  }
}

}  // namespace

void pair_product(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  products<false>[rows - 1](pairs, a, b, tile);
}
void pair_product_add(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b,
                      float* tile) {
  products<true>[rows - 1](pairs, a, b, tile);
}

void store_rounded(std::int64_t rows, const float* tile, const std::uint16_t* bias, std::uint16_t* to,
                   std::int64_t stride) {
  round_rows(rows, tile, bias, to, stride);
}

}  // namespace trireme::cpu

#else

namespace trireme::cpu {

void pair_product(std::int64_t, std::int64_t, const std::uint32_t*, const std::uint32_t*, float*) {
  __builtin_trap();  // no processor of this kind has the unit: processor.cpp never selects it
}
void pair_product_add(std::int64_t, std::int64_t, const std::uint32_t*, const std::uint32_t*, float*) {
  __builtin_trap();
}
void store_rounded(std::int64_t, const float*, const std::uint16_t*, std::uint16_t*, std::int64_t) { __builtin_trap(); }

}  // namespace trireme::cpu

#endif
