// Matrix instructions of the emulator, with the fragment layouts of the PTX manual.
//   ldmatrix, mma.sync: the 32 threads of a warp.  wgmma: the 128 threads of a warp group, operands in shared memory.
// Fragments of m16n8k16, for lane l, g = l / 4, t = l % 4; two 16-bit values to a register, the lower column first:
//   A [16, 16]: register r holds row g + 8 (r & 1), columns 2t + 8 (r >> 1) and the next
//   B [16, 8]:  register r holds rows 2t + 8 r and the next, column g
//   D [16, 8]:  value i is at row g + 8 (i >> 1), column 2t + (i & 1)
// Read next: cuda/emu/device.h.
#pragma once

#include <cstdint>

#include "cuda/emu/block.h"

namespace trireme::cuda::emu {

enum class Half : std::uint8_t { bf16, f16 };

/// Loads `matrices` (1, 2 or 4) 8 x 8 matrices of 16-bit values: lane 8 i + r gives the address of row r of matrix i.
void ldmatrix(std::uint32_t* registers, int matrices, bool transpose, const void* row, Site site);
/// The inverse: rows of shared memory from fragments.
void stmatrix(const std::uint32_t* registers, int matrices, void* row, Site site);

/// d += a b, with d [16, 8] in f32.
void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, Half type, Site site);

/// One wgmma.mma_async.m64nNk16: d [64, n] = a b (+ d). `a` null: descriptor_a; otherwise four registers of A.
struct Wgmma {
  float* d;
  const std::uint32_t* a;
  std::uint64_t descriptor_a, descriptor_b;
  int n;
  bool accumulate;
  bool transpose_a, transpose_b;  ///< operand in shared memory is M- (N-) major instead of K-major
  Half type;
};
void wgmma(const Wgmma& operation, Site site);
void wgmma_fence(Site site);
void wgmma_commit(Site site);
void wgmma_wait(int newest, Site site);

}  // namespace trireme::cuda::emu
