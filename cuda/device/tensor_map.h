// Descriptions of tensors for TMA: made on the host, passed to a kernel by value as a `const __grid_constant__`
// parameter. One function makes the driver's CUtensorMap or the emulator's TensorMap, with the same checks.
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
  std::int64_t batch, batch_stride;  ///< batch 1: the stride is ignored
  int box_rows, box_columns;
};

/// Checks what cuTensorMapEncodeTiled requires (CUDA driver API, "Tensor Map Object Management"), with our messages.
inline void check_tiled(const char* where, const TiledMatrix& m) {
  if (reinterpret_cast<std::uintptr_t>(m.base) % 16 != 0)
    fail(ExitCode::usage, where, "{} begins {} bytes after a multiple of 16; expected 0, because TMA reads it; {}",
         m.name, reinterpret_cast<std::uintptr_t>(m.base) % 16, "move it, or use gemm_sm80");
  const auto check_stride = [&](const char* what, std::int64_t elements) {
    if (elements * 2 % 16 != 0 || elements <= 0)
      fail(ExitCode::usage, where,
           "the {} of {} is {} elements, {} bytes; expected a positive multiple of 16 bytes, because TMA reads it; "
           "pad it to {} elements, or use gemm_sm80",
           what, m.name, elements, 2 * elements, elements < 8 ? 8 : (elements + 7) / 8 * 8);
  };
  check_stride("pitch", m.pitch);
  if (m.batch > 1) check_stride("batch stride", m.batch_stride);
}

/// The heads of a batch of sequences, 16-bit values: a token's heads lie side by side. The tile of one TMA instruction
/// is 64 values of a head by box_tokens tokens; values past head_dim and tokens past the end read as zeros and are not
/// stored.
struct TiledHeads {
  const char* name;  ///< of the operand, for errors
  const void* base;
  int head_dim, heads, tokens, batch;
  std::int64_t pitch;  ///< elements from token to token
  int box_tokens;
};

inline void check_tiled(const char* where, const TiledHeads& m) {
  if (reinterpret_cast<std::uintptr_t>(m.base) % 16 != 0)
    fail(ExitCode::usage, where,
         "{} begins {} bytes after a multiple of 16; expected 0, because TMA reads and writes it; move it", m.name,
         reinterpret_cast<std::uintptr_t>(m.base) % 16);
  if (m.pitch % 8 != 0 || m.pitch < std::int64_t{m.head_dim} * m.heads || m.head_dim % 8 != 0)
    fail(ExitCode::usage, where,
         "the pitch of {} is {} elements, with {} heads of {}; expected a multiple of 8 elements (16 bytes) that holds "
         "all heads, because TMA reads and writes it; pad it",
         m.name, m.pitch, m.heads, m.head_dim);
}

/// Code for sm_90a runs only on devices of compute capability 9.0, not on newer ones either.
inline void require_hopper(const char* where) {
  const DeviceLimits& limits = device_limits();
  if (limits.major != 9 || limits.minor != 0)
    fail(ExitCode::usage, where,
         "the device has compute capability {}.{}; expected 9.0 (Hopper); use the kernel for sm_80", limits.major,
         limits.minor);
}

#if defined(__CUDACC__)

/// The driver's encoder, looked up once, and through the runtime, so that nothing links against libcuda.
inline auto tensor_map_encoder(const char* where) {
  static const auto encoder = [&] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
      fail(ExitCode::usage, where,
           "the driver has no cuTensorMapEncodeTiled ({}); expected a driver for CUDA 12 or later; update it",
           cudaGetErrorString(error));
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return encoder;
}

/// Sizes and boxes in 16-bit values, innermost dim first; strides in bytes, from the second dim on.
template <std::size_t Rank>
TensorMap encode_tiled(const char* where, const char* name, const void* base,
                       const std::array<std::int64_t, Rank>& size, const std::array<std::int64_t, Rank - 1>& stride,
                       const std::array<int, Rank>& box) {
  const auto encode = tensor_map_encoder(where);
  std::array<cuuint64_t, Rank> sizes{};
  std::array<cuuint64_t, Rank - 1> strides{};
  std::array<cuuint32_t, Rank> boxes{}, steps{};
  for (std::size_t d = 0; d < Rank; ++d) {
    sizes[d] = static_cast<cuuint64_t>(size[d]);
    boxes[d] = static_cast<cuuint32_t>(box[d]);
    steps[d] = 1;
    if (d > 0) strides[d - 1] = static_cast<cuuint64_t>(stride[d - 1]);
  }
  TensorMap map;
  // The type only sets the width of an element: zeros outside are the same bits for bf16 and f16.
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, Rank, const_cast<void*>(base), sizes.data(), strides.data(),
             boxes.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    fail(ExitCode::internal, where, "cuTensorMapEncodeTiled refused {} with error {}", name, static_cast<int>(result));
  return map;
}

#else

template <std::size_t Rank>
TensorMap encode_tiled(const char* where, const char* name, const void* base,
                       const std::array<std::int64_t, Rank>& size, const std::array<std::int64_t, Rank - 1>& stride,
                       const std::array<int, Rank>& box) {
  static_assert(Rank <= 4, "the device header has no TMA instruction for more dims");
  TensorMap map;
  map.base = const_cast<std::byte*>(static_cast<const std::byte*>(base));
  map.rank = Rank;
  map.element_bytes = 2;
  for (std::size_t d = 0; d < Rank; ++d) {
    map.size[d] = size[d];
    map.stride[d] = d == 0 ? 2 : stride[d - 1];
    map.box[d] = box[d];
  }
  map.swizzle = Swizzle::b128;
  emu::check_tensor_map(where, name, map);
  return map;
}

#endif

/// Coordinates: column, row, matrix.
inline TensorMap tensor_map(const char* where, const TiledMatrix& m) {
  require_hopper(where);
  check_tiled(where, m);
  const std::int64_t stack = m.batch > 1 ? m.batch_stride : m.rows * m.pitch;
  return encode_tiled<3>(where, m.name, m.base, {m.columns, m.rows, m.batch}, {2 * m.pitch, 2 * stack},
                         {m.box_columns, m.box_rows, 1});
}

/// Coordinates: value, token, head, sequence.
inline TensorMap tensor_map(const char* where, const TiledHeads& m) {
  require_hopper(where);
  check_tiled(where, m);
  return encode_tiled<4>(where, m.name, m.base, {m.head_dim, m.tokens, m.heads, m.batch},
                         {2 * m.pitch, 2 * m.head_dim, 2 * m.tokens * m.pitch}, {64, m.box_tokens, 1, 1});
}

}  // namespace trireme::cuda
