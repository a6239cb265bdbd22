// Descriptions of tensors for TMA: made on the host, passed to a kernel by value as a `const __grid_constant__`
// parameter. One function for the driver's CUtensorMap and for the emulator's TensorMap, with the same refusals.
// Read next: cuda/kernels/gemm_sm90.cu, which uses it.
#pragma once

#include <array>
#include <cstdint>

#include "core/error.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

/// A stack of matrices of 16-bit values, and the tile that one TMA instruction moves. Sizes in elements.
struct TiledMatrix {
  const char* name;  ///< of the operand, for errors
  const void* base;
  std::int64_t rows, columns, pitch;
  std::int64_t batch, batch_stride;  ///< batch 1: the stride means nothing
  int box_rows, box_columns;
};

/// What cuTensorMapEncodeTiled demands (CUDA driver API, "Tensor Map Object Management"), said in our words.
inline void check_tiled(const char* where, const TiledMatrix& m) {
  if (reinterpret_cast<std::uintptr_t>(m.base) % 16 != 0)
    fail(ExitCode::usage, where, "{} begins {} bytes after a multiple of 16; expected none, because TMA reads it; {}",
         m.name, reinterpret_cast<std::uintptr_t>(m.base) % 16, "move it, or use gemm_sm80");
  const auto check_stride = [&](const char* what, std::int64_t elements) {
    if (elements * 2 % 16 != 0 || elements <= 0)
      fail(ExitCode::usage, where,
           "the {} of {} is {} elements, {} bytes; expected a positive multiple of 16 bytes, because TMA reads it; pad "
           "it "
           "to {} elements, or use gemm_sm80",
           what, m.name, elements, 2 * elements, elements < 8 ? 8 : (elements + 7) / 8 * 8);
  };
  check_stride("pitch", m.pitch);
  if (m.batch > 1) check_stride("batch stride", m.batch_stride);
}

#if defined(__CUDACC__)

/// Code for sm_90a runs on devices of compute capability 9.0 and on no others, newer ones included.
inline void require_hopper(const char* where) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess)
    fail(ExitCode::internal, where, "the device does not say what it is: {}", cudaGetErrorString(error));
  if (major != 9 || minor != 0)
    fail(ExitCode::usage, where, "the device has compute capability {}.{}; expected 9.0 (Hopper); use gemm_sm80", major,
         minor);
}

/// The driver's encoder, through the runtime: nothing links against libcuda.
inline TensorMap tensor_map(const char* where, const TiledMatrix& m) {
  require_hopper(where);
  check_tiled(where, m);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
    fail(ExitCode::usage, where,
         "the driver has no cuTensorMapEncodeTiled ({}); expected a driver for CUDA 12 or later",
         cudaGetErrorString(error));
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const auto wide = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const std::int64_t stack = m.batch > 1 ? m.batch_stride : m.rows * m.pitch;
  const std::array<cuuint64_t, 3> size = {wide(m.columns), wide(m.rows), wide(m.batch)};
  const std::array<cuuint64_t, 2> stride = {wide(2 * m.pitch), wide(2 * stack)};  // bytes
  const std::array<cuuint32_t, 3> box = {static_cast<cuuint32_t>(m.box_columns), static_cast<cuuint32_t>(m.box_rows),
                                         1};
  const std::array<cuuint32_t, 3> step = {1, 1, 1};
  TensorMap map;
  // The type only says how wide an element is: zeros outside are the same bits for bf16 and f16.
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(m.base), size.data(), stride.data(),
             box.data(), step.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    fail(ExitCode::internal, where, "cuTensorMapEncodeTiled refused {} with error {}", m.name,
         static_cast<int>(result));
  return map;
}

#else

inline TensorMap tensor_map(const char* where, const TiledMatrix& m) {
  check_tiled(where, m);
  TensorMap map;
  map.base = const_cast<std::byte*>(static_cast<const std::byte*>(m.base));
  map.rank = 3;
  map.element_bytes = 2;
  map.size = {m.columns, m.rows, m.batch};
  map.stride = {2, 2 * m.pitch, 2 * m.batch_stride};
  map.box = {m.box_columns, m.box_rows, 1};
  map.swizzle = Swizzle::b128;
  return map;
}

#endif

}  // namespace trireme::cuda
