// Carrying out attention in cuDNN's terms, and planning it where there is no GPU. Knows nothing of our kernels'
// headers, which under the C++ compiler are the emulator's and do not go together with the toolkit's.
// Read next: cuda/libraries/cudnn_attention.cpp.
#pragma once

#include <string_view>

#include "cuda/libraries/sdpa_problem.h"

namespace trireme::cuda {

/// Queues the call on `stream`, a cudaStream_t: the device's own, as the workspace follows that one's order.
void run_cudnn_attention(const SdpaCall& call, void* stream);

/// Makes the plan for a GPU that is not there, described in cuDNN's JSON, and returns the bytes of its workspace. For
/// tests: the library checks graph and tensors, chooses an engine and compiles it.
std::int64_t plan_cudnn_attention(const SdpaProblem& problem, std::string_view device_json);

}  // namespace trireme::cuda
