// Compiled for AMX, and called only where the processor has it: see bf16_pairs.cpp.
#include "core/cpu/amx_tiles.h"

#if defined(__AMX_BF16__)

#include <immintrin.h>

namespace trireme::cpu {
namespace {

constexpr std::int64_t bytes_of_sum = sizeof(float);

struct Processor {
  template <int t>
  void zero();
  template <int t>
  void load_sum(const float* from, std::int64_t stride);
  template <int t>
  void load(const void* from, std::int64_t stride);
  template <int sum, int a, int b>
  void dot();
  template <int t>
  void store(float* to, std::int64_t stride);
};

// Intrinsics take the numbers of registers as literals.
#define TRIREME_SUM(t, a, b)                                            \
  template <>                                                           \
  void Processor::zero<t>() {                                           \
    _tile_zero(t);                                                      \
  }                                                                     \
  template <>                                                           \
  void Processor::load_sum<t>(const float* from, std::int64_t stride) { \
    _tile_loadd(t, from, stride* bytes_of_sum);                         \
  }                                                                     \
  template <>                                                           \
  void Processor::dot<t, a, b>() {                                      \
    _tile_dpbf16ps(t, a, b);                                            \
  }                                                                     \
  template <>                                                           \
  void Processor::store<t>(float* to, std::int64_t stride) {            \
    _tile_stored(t, to, stride* bytes_of_sum);                          \
  }
#define TRIREME_OPERAND(t)                                         \
  template <>                                                      \
  void Processor::load<t>(const void* from, std::int64_t stride) { \
    _tile_loadd(t, from, stride);                                  \
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

void amx_product(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to, std::int64_t stride) {
  tile_product_of<false>(Processor(), groups, a, b, to, stride);
}
void amx_product_add(std::int64_t groups, const RowTiles& a, const std::uint32_t* b, float* to, std::int64_t stride) {
  tile_product_of<true>(Processor(), groups, a, b, to, stride);
}

void set_up_amx() {
  static constexpr Configuration configuration;
  _tile_loadconfig(&configuration);
}
void release_amx() { _tile_release(); }

}  // namespace trireme::cpu

#else

namespace trireme::cpu {

void amx_product(std::int64_t, const RowTiles&, const std::uint32_t*, float*, std::int64_t) {
  __builtin_trap();  // no processor of this kind has tiles: processor.cpp never selects them
}
void amx_product_add(std::int64_t, const RowTiles&, const std::uint32_t*, float*, std::int64_t) { __builtin_trap(); }
void set_up_amx() { __builtin_trap(); }
void release_amx() {}

}  // namespace trireme::cpu

#endif
