// Zones: memory around an allocation, which no kernel may touch. AddressSanitizer builds poison it and report the
// access itself. Other builds fill it with a pattern that is NaN in every floating format and that programs hardly ever
// write: a read there spoils most results, and comparing the pattern later finds a write.
// Read next: cuda/emu/shared.cpp.
#pragma once

#include <cstddef>

#include "cuda/emu/fiber.h"

#if defined(TRIREME_EMU_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace trireme::cuda::emu {

/// Byte `at` of the pattern that fills zones (ASan calls them redzones). Its period is 28 bytes: the 16-bit words
/// 0x7ff1 to 0x7ffe, never -1 or 0x7fff.
constexpr unsigned char zone_byte(std::size_t at) {
  return at % 2 == 1 ? 0x7f : static_cast<unsigned char>(0xf1 + at / 2 % 14);
}
inline constexpr std::size_t kZonePeriod = 28;

#if defined(TRIREME_EMU_ASAN)
inline constexpr bool zones_are_poisoned = true;
inline void poison(const void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void unpoison(const void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
inline constexpr bool zones_are_poisoned = false;
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace trireme::cuda::emu
