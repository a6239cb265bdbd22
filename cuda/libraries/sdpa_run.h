// Runs attention in cuDNN's terms, and plans it without a GPU. Does not include our kernels' headers: under the C++
// compiler these are the emulator's, which conflict with the toolkit's.
// Read next: cuda/libraries/cudnn_attention.cpp.
#pragma once

#include <string_view>

#include "cuda/libraries/sdpa_problem.h"

namespace trireme::cuda {

/// Queues the call on `stream`, a cudaStream_t: must be the device's own, because the workspace relies on its order.
void run_cudnn_attention(const SdpaCall& call, void* stream);

/// Makes the plan for an absent GPU, described in cuDNN's JSON, and returns the bytes of its workspace. For tests: the
/// library checks graph and tensors, chooses an engine and compiles it.
std::int64_t plan_cudnn_attention(const SdpaProblem& problem, std::string_view device_json);

}  // namespace trireme::cuda
