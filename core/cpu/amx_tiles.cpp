// Compiled for AMX, and called only where the processor has it: see bf16_pairs.cpp.
#include "core/cpu/amx_tiles.h"

#if defined(__AMX_BF16__)

#include <immintrin.h>

namespace trireme::cpu {
namespace {

struct Processor {
  template <int t>
  void zero();
  template <int t>
  void load_sum(const float* from);
  template <int t>
  void load(const std::uint32_t* from);
  template <int sum, int a, int b>
  void dot();
  template <int t>
  void store(float* to);
};

// Intrinsics take the numbers of registers as literals.
#define TRIREME_SUM(t, a, b)                                                 \
  template <>                                                                \
  void Processor::zero<t>() {                                                \
    _tile_zero(t);                                                           \
  }                                                                          \
  template <>                                                                \
  void Processor::load_sum<t>(const float* from) {                           \
    _tile_loadd(t, from, amx_tile_columns* static_cast<int>(sizeof(float))); \
  }                                                                          \
  template <>                                                                \
  void Processor::dot<t, a, b>() {                                           \
    _tile_dpbf16ps(t, a, b);                                                 \
  }                                                                          \
  template <>                                                                \
  void Processor::store<t>(float* to) {                                      \
    _tile_stored(t, to, amx_tile_columns* static_cast<int>(sizeof(float)));  \
  }
#define TRIREME_OPERAND(t)                             \
  template <>                                          \
  void Processor::load<t>(const std::uint32_t* from) { \
    _tile_loadd(t, from, 64);                          \
  }
TRIREME_SUM(0, 4, 6)
TRIREME_SUM(1, 4, 7)
TRIREME_SUM(2, 5, 6)
TRIREME_SUM(3, 5, 7)
TRIREME_OPERAND(4)
TRIREME_OPERAND(5)
TRIREME_OPERAND(6)
TRIREME_OPERAND(7)
#undef TRIREME_SUM
#undef TRIREME_OPERAND

/// What LDTILECFG reads (Intel SDM, volume 1, 18.3): palette 1, and for each register its rows and its bytes per row.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(Configuration) == 64);

}  // namespace

void amx_product(std::int64_t groups, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  tile_product_of<false>(Processor(), groups, a, b, tile);
}
void amx_product_add(std::int64_t groups, const std::uint32_t* a, const std::uint32_t* b, float* tile) {
  tile_product_of<true>(Processor(), groups, a, b, tile);
}

void set_up_amx() {
  static constexpr Configuration configuration;
  _tile_loadconfig(&configuration);
}
void release_amx() { _tile_release(); }

}  // namespace trireme::cpu

#else

namespace trireme::cpu {

void amx_product(std::int64_t, const std::uint32_t*, const std::uint32_t*, float*) { __builtin_trap(); }
void amx_product_add(std::int64_t, const std::uint32_t*, const std::uint32_t*, float*) { __builtin_trap(); }
void set_up_amx() { __builtin_trap(); }  // no processor of this kind has tiles: processor.cpp never selects them
void release_amx() {}

}  // namespace trireme::cpu

#endif
