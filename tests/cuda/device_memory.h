// Where the buffers of kernel tests live: in device memory when the tests are compiled by nvcc, for a GPU; in a second
// piece of host memory under emulation, so that a test which mixes the two up fails there as well.
// Read next: tests/cuda/support.h.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "cuda/device/device.h"
#if !defined(__CUDACC__)
#include "cuda/emu/race.h"
#endif

namespace cuda_test {

#if defined(__CUDACC__)

inline void require_success(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    trireme::fail(trireme::ExitCode::internal, "cuda test", "{}: {}", call, cudaGetErrorString(error));
}
inline void* device_allocate(std::size_t bytes) {
  void* pointer = nullptr;
  require_success(cudaMalloc(&pointer, bytes), "cudaMalloc");
  return pointer;
}
inline void device_free(void* pointer) { (void)cudaFree(pointer); }
struct Watch {
  Watch(const void*, std::size_t) {}
};
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  require_success(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}
/// Waits for the kernels before; their errors show here.
inline void copy_to_host(void* to, const void* from, std::size_t bytes) {
  require_success(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

#else

inline void* device_allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
inline void device_free(void* pointer) { std::free(pointer); }
using Watch = trireme::cuda::emu::WatchedMemory;
inline void copy_to_device(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void copy_to_host(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace cuda_test
