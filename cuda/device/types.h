// Types shared by kernels, their launches and the emulator, with and without a CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/half.h"

namespace trireme::cuda {

/// Kernels started so far in this process. Tests use it to see whether their copies from the device are out of date.
std::uint64_t launch_count();

/// As CUDA's dim3.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

/// The pattern in which a tile's 16-byte pieces are permuted in shared memory: an XOR of address bits 4-6 with bits
/// 7-9, so that eight rows of a column touch all banks. The number is the width of the pattern's row in bytes.
enum class Swizzle : std::uint8_t { none, b32, b64, b128 };

/// Maps `address` (from the start of shared memory) under a swizzle. TMA and wgmma use the same function.
constexpr std::uint32_t swizzled(Swizzle swizzle, std::uint32_t address) {
  const std::uint32_t bits = swizzle == Swizzle::b128 ? 7U : swizzle == Swizzle::b64 ? 3U : 1U;
  return swizzle == Swizzle::none ? address : address ^ (((address >> 7) & bits) << 4);
}

}  // namespace trireme::cuda
