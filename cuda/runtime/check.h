// Error checks for the CUDA runtime API; messages have the call, its place and sizes. For cuda/runtime/real.cpp.
//
//   TRIREME_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream), "{} bytes", bytes);
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "core/error.h"

namespace trireme::cuda {

/// Throws if `error` is an error: out of memory and an unavailable device as ExitCode::retryable, others as internal.
/// An error of an earlier kernel appears at the next call that waits, hence the hint.
inline void check_call(cudaError_t error, std::string_view call, std::string_view file, int line,
                       const std::string& sizes) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report a non-sticky error again
  const bool transient = error == cudaErrorMemoryAllocation || error == cudaErrorDevicesUnavailable;
  fail(transient ? ExitCode::retryable : ExitCode::internal, call.substr(0, call.find('(')),
       "{} ({}){}{}, at {}:{}; an earlier kernel may be the cause: CUDA_LAUNCH_BLOCKING=1 shows which",
       cudaGetErrorString(error), cudaGetErrorName(error), sizes.empty() ? "" : "; ", sizes, file, line);
}

}  // namespace trireme::cuda

#define TRIREME_CUDA(call, ...) \
  ::trireme::cuda::check_call((call), #call, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__))
