// Starts kernels on a real GPU, and queries its limits. Included by cuda/device/nvcc.h. Each device and each kernel is
// queried once: a launch takes a few microseconds, and a query of the driver can take as long.
// Read next: cuda/device/limits.h.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device_work.h"
#include "core/error.h"
#include "cuda/device/limits.h"
#include "cuda/device/types.h"

namespace trireme::cuda {

struct LaunchConfig {
  const char* name = "kernel";  ///< for error messages
  Dim3 grid, block;
  std::size_t dynamic_shared = 0;
  Stream stream = nullptr;
  int cluster = 1;  ///< blocks of a cluster: neighbours in x
};

inline void check_launch(cudaError_t error, const LaunchConfig& c) {
  if (error == cudaSuccess) return;
  fail(ExitCode::internal, c.name, "{}; grid ({}, {}, {}), block ({}, {}, {}), {} bytes of shared memory",
       cudaGetErrorString(error), c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z, c.dynamic_shared);
}

inline void check_device(cudaError_t error) {
  if (error != cudaSuccess)
    fail(ExitCode::internal, "cuda", "the limits of the device cannot be queried: {}", cudaGetErrorString(error));
}

inline std::atomic<std::uint64_t> launches{0};
inline std::uint64_t launch_count() { return launches; }

/// The current device of the calling thread.
inline int current_device() {
  int device = 0;
  check_device(cudaGetDevice(&device));
  return device;
}

inline DeviceLimits query_limits(int device) {
  const auto query = [device](cudaDeviceAttr what) {
    int value = 0;
    check_device(cudaDeviceGetAttribute(&value, what, device));
    return value;
  };
  return {query(cudaDevAttrComputeCapabilityMajor), query(cudaDevAttrComputeCapabilityMinor),
          query(cudaDevAttrMultiProcessorCount),
          static_cast<std::size_t>(query(cudaDevAttrMaxSharedMemoryPerBlockOptin))};
}

/// The limits of the current device.
inline const DeviceLimits& device_limits() {
  static const std::vector<DeviceLimits> devices = [] {
    int count = 0;
    check_device(cudaGetDeviceCount(&count));
    std::vector<DeviceLimits> all;
    for (int device = 0; device < count; ++device) all.push_back(query_limits(device));
    return all;
  }();
  return devices[static_cast<std::size_t>(current_device())];
}
inline int multiprocessors() { return device_limits().multiprocessors; }

/// Opts a kernel in to all the dynamic shared memory that its static memory leaves, and returns how much that is.
inline std::size_t opt_in_to_shared(const LaunchConfig& c, const void* kernel) {
  cudaFuncAttributes attributes{};
  check_launch(cudaFuncGetAttributes(&attributes, kernel), c);
  const std::size_t most = device_limits().shared_per_block - attributes.sharedSizeBytes;
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)), c);
  return most;
}

/// The same, once for each kernel and device: CUDA keeps attributes for each device.
inline std::size_t most_dynamic_shared(const LaunchConfig& c, const void* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, std::size_t> known;
  const std::pair<int, const void*> key(current_device(), kernel);
  const std::scoped_lock lock(mutex);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = opt_in_to_shared(c, kernel);
}

inline cudaLaunchAttribute cluster_attribute(const LaunchConfig& c) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(c.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}
inline cudaLaunchConfig_t native(const LaunchConfig& c, cudaLaunchAttribute& attribute) {
  return {dim3(c.grid.x, c.grid.y, c.grid.z),
          dim3(c.block.x, c.block.y, c.block.z),
          c.dynamic_shared,
          c.stream,
          &attribute,
          1};
}

/// How many clusters of this launch can run at the same time. Queried once for each kernel and device.
template <class Kernel>
int resident_clusters(const LaunchConfig& c, Kernel* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, int> known;
  const auto* const address = reinterpret_cast<const void*>(kernel);
  const std::pair<int, const void*> key(current_device(), address);
  const std::scoped_lock lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  int clusters = 0;
  if (device_limits().major >= 9) {
    most_dynamic_shared(c, address);
    cudaLaunchAttribute attribute = cluster_attribute(c);
    const cudaLaunchConfig_t config = native(c, attribute);
    check_launch(cudaOccupancyMaxActiveClusters(&clusters, address, &config), c);
  }
  return known[key] = clusters;
}

/// Rounds dynamic shared memory up to 16 bytes: ptxas reads the end of an array by whole vectors, and ignores what lies
/// behind it. That must be memory of the block, too, for compute-sanitizer.
inline LaunchConfig with_whole_vectors(LaunchConfig c) {
  c.dynamic_shared = (c.dynamic_shared + 15) / 16 * 16;
  return c;
}

template <class... Parameters, class... Arguments>
void launch(const LaunchConfig& config, void (*kernel)(Parameters...), const Arguments&... arguments) {
  ++launches;
  ++device_work().launches;
  const LaunchConfig c = with_whole_vectors(config);
  if (needs_shared_opt_in(c.dynamic_shared)) {
    const std::size_t most = most_dynamic_shared(c, reinterpret_cast<const void*>(kernel));
    if (c.dynamic_shared > most)
      fail(ExitCode::usage, c.name,
           "{} bytes of dynamic shared memory for a block; expected at most {} on this GPU; use smaller tensors, or a "
           "GPU with more shared memory",
           c.dynamic_shared, most);
  }
  if (c.cluster == 1) {
    kernel<<<dim3(c.grid.x, c.grid.y, c.grid.z), dim3(c.block.x, c.block.y, c.block.z), c.dynamic_shared, c.stream>>>(
        arguments...);
    return check_launch(cudaGetLastError(), c);
  }
  cudaLaunchAttribute attribute = cluster_attribute(c);
  const cudaLaunchConfig_t clusters = native(c, attribute);
  check_launch(cudaLaunchKernelEx(&clusters, kernel, arguments...), c);
}

}  // namespace trireme::cuda
