// The part of cuDNN's graph API that attention needs: RAII descriptors, the library's form of a
// graph, and an engine's plan for it. (cuDNN documentation, "Graph API", "Backend descriptor types";
// NVIDIA.)
// Read next: cuda/libraries/cudnn_graph.cpp.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "cuda/libraries/sdpa_graph.h"

namespace trireme::cuda {

/// Throws unless `status` is success, with the call, the place, the library's message, and the purpose.
void check_cudnn(cudnnStatus_t status, std::string_view call, const char* file, int line, std::string_view what);
#define TRIREME_CUDNN(call, what) ::trireme::cuda::check_cudnn((call), #call, __FILE__, __LINE__, what)

/// One descriptor: create, set, finalize. `what` goes into errors and must outlive the object.
class CudnnDescriptor {
 public:
  CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string_view what);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : what_(other.what_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                       const void* values);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, bool value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  CudnnDescriptor& finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  std::string_view what() const { return what_; }

 private:
  std::string_view what_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// The GPU that a plan is for: that of a handle; or, without a GPU, one with these properties.
struct CudnnDevice {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};
/// Device properties from cuDNN's own JSON.
CudnnDescriptor cudnn_properties(std::string_view json, std::string_view what);

/// The library's operation graph.
CudnnDescriptor cudnn_operations(const SdpaGraph& graph, const CudnnDevice& device, std::string_view what);

/// An engine's plan to execute a graph.
struct CudnnPlan {
  CudnnDescriptor descriptor;
  std::int64_t workspace;  ///< bytes
};

/// The first of the library's suggestions, best first, that is executable and gives the same bits on every run.
CudnnPlan cudnn_plan(const CudnnDescriptor& graph, const CudnnDevice& device, std::string_view what);

}  // namespace trireme::cuda
