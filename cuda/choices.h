// What "auto" selects: which implementations compute the products and the attention of a model's shapes on this device,
// before the first step. Assumes operands as layers make them: dense, at addresses aligned to 16 bytes.
// Read next: cuda/implementations.h; train/gpt/gpu_choices.h, which asks for a whole model.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace trireme::cuda {

/// The three products of a linear layer with weights [out, in] over `rows` tokens: y = x w^T, dx = dy w, dw = dy^T x.
struct LayerChoice {
  std::string_view forward, dx, dw;
};
struct AttentionChoice {
  std::string_view forward, backward;
};

/// The largest head_dim of attention on a GPU, in any dtype: a head's row must fit a block's registers.
inline constexpr std::int64_t kMostHeadDims = 128;

/// dtype: f32, bf16 or f16. Both need a usable device (cuda/runtime/open.h). They throw ExitCode::usage if an
/// implementation that was selected by name cannot take the call. Names are empty in a build without CUDA.
LayerChoice layer_choice(DType dtype, std::int64_t rows, std::int64_t in, std::int64_t out);
AttentionChoice attention_choice(DType dtype, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t head_dim);

}  // namespace trireme::cuda
