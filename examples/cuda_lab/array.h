// Arrays for kernels of examples/cuda_lab outside of tests: in device memory, with a copy in host memory that is
// updated when it is read. Under emulation both are host memory.
// Read next: examples/cuda_lab/trial.h.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "cuda/device/device.h"

namespace trireme::cuda::lab {

#if defined(__CUDACC__)

inline void check_call(cudaError_t error, const char* call) {
  if (error != cudaSuccess) fail(ExitCode::internal, "cuda lab", "{}: {}", call, cudaGetErrorString(error));
}
inline void* allocate(std::size_t bytes) {
  void* pointer = nullptr;
  check_call(cudaMalloc(&pointer, bytes), "cudaMalloc");
  return pointer;
}
inline void release(void* pointer) { (void)cudaFree(pointer); }
inline void upload(void* to, const void* from, std::size_t bytes) {
  check_call(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}
inline void download(void* to, const void* from, std::size_t bytes) {
  check_call(cudaDeviceSynchronize(), "a kernel of examples/cuda_lab");
  check_call(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

#else

inline void* allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
inline void release(void* pointer) { std::free(pointer); }
inline void upload(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void download(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

#endif

template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : host_(count), device_(static_cast<T*>(allocate(count * sizeof(T) + 1))) {}
  ~Array() { release(device_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  /// For kernels; contains what the host has set.
  T* data() {
    if (changed_) upload(device_, host_.data(), host_.size() * sizeof(T));
    changed_ = false;
    seen_ = launch_count();
    return device_;
  }
  std::size_t size() const { return host_.size(); }
  void set(std::size_t i, T value) {
    host_[i] = value;
    changed_ = true;
  }
  T value(std::size_t i) const {
    if (!changed_ && seen_ != launch_count()) {
      download(host_.data(), device_, host_.size() * sizeof(T));
      seen_ = launch_count();
    }
    return host_[i];
  }
  double at(std::size_t i) const { return static_cast<double>(static_cast<float>(value(i))); }

 private:
  mutable std::vector<T> host_;
  T* device_;
  bool changed_ = true;
  mutable std::uint64_t seen_ = 0;  // launches at the last look
};

}  // namespace trireme::cuda::lab
