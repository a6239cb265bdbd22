// Where the buffers of kernel tests live: in device memory when the tests are compiled by nvcc, for a GPU; in a second
// block of host memory under emulation, so that a test that confuses the two fails there as well.
// Read next: tests/cuda/support.h.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "cuda/device/device.h"
#if !defined(__CUDACC__)
#include "cuda/emu/race.h"
#include "cuda/emu/zone.h"
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
struct Fence {
  Fence(const void*, std::size_t, std::size_t, std::size_t) {}
  void close() const {}
  void open() const {}
};
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  require_success(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}
/// Waits for the kernels launched before, and reports their errors.
inline void copy_to_host(void* to, const void* from, std::size_t bytes) {
  require_success(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

#else

inline void* device_allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
inline void device_free(void* pointer) { std::free(pointer); }

/// Guards the memory around a tensor, which lies from byte `first` to before `last`. The race build reports every
/// access around it; AddressSanitizer does while the fence is closed. Copies of the whole memory need it open.
class Fence {
 public:
  Fence(const void* begin, std::size_t bytes, std::size_t first, std::size_t last)
      : begin_(static_cast<const std::byte*>(begin)),
        bytes_(bytes),
        first_(first),
        last_(last),
        watched_(begin, {bytes, first, last}) {}
  ~Fence() { open(); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  void close() const {
    trireme::cuda::emu::poison(begin_, first_);
    trireme::cuda::emu::poison(begin_ + last_, bytes_ - last_);
  }
  void open() const { trireme::cuda::emu::unpoison(begin_, bytes_); }

 private:
  const std::byte* begin_;
  std::size_t bytes_, first_, last_;
  trireme::cuda::emu::WatchedMemory watched_;
};

inline void copy_to_device(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void copy_to_host(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace cuda_test
