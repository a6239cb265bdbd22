// Our attention by NVIDIA's cuDNN: another implementation of the same structs. Compiled and linked if cuDNN is present.
// The library accepted the graphs and made plans for an H200, but nothing has run: there was no GPU.
//
// The first call with a shape builds a graph and asks for an engine; later ones find the plan in a map. Engines whose
// results vary from run to run are not used, because our own kernels are reproducible.
// Read next: cuda/libraries/sdpa_translate.h, then cudnn_attention.cpp.
#pragma once

#include "core/error.h"
#include "cuda/libraries/sdpa_run.h"
#include "cuda/libraries/sdpa_translate.h"

namespace trireme::cuda {

/// As attention_forward_sm80, on the device's own stream. Throws ExitCode::usage for what cudnn_attention_cannot names.
template <class T>
void cudnn_attention_forward(const AttentionForward<T>& attention, Stream stream = nullptr) {
  if (const std::string reason = cudnn_attention_cannot(attention); !reason.empty())
    fail(ExitCode::usage, "attention", "cuDNN cannot do {}; choose another --attention", reason);
  if (attention.batch > 0 && attention.heads > 0 && attention.queries > 0)
    run_cudnn_attention(translate(attention), stream);
}

/// As attention_backward_sm80; first_tile is not used.
template <class T>
void cudnn_attention_backward(const AttentionBackward<T>& attention, Stream stream = nullptr) {
  if (const std::string reason = cudnn_attention_cannot(attention); !reason.empty())
    fail(ExitCode::usage, "attention", "cuDNN cannot do the backward of {}; choose another --attention", reason);
  const AttentionForward<T>& forward = attention.forward;
  if (forward.batch > 0 && forward.heads > 0 && forward.queries > 0) run_cudnn_attention(translate(attention), stream);
}

}  // namespace trireme::cuda
