// What "auto" takes: the implementations that the products and the attention of a model's shapes go to on this device,
// known before the first step. Operands are taken to be as layers make them: dense, at addresses aligned to 16 bytes.
// Read next: cuda/implementations.h; train/gpu_choices.h, which asks for a whole model.
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

/// Features of a head that attention on a GPU takes in any dtype: a head's row must fit a block's registers.
inline constexpr std::int64_t kMostHeadDims = 128;

/// dtype: f32, bf16 or f16. Both want a device that has been found usable (cuda/runtime/open.h), and throw
/// ExitCode::usage for what an implementation asked for by name cannot take. Names are empty in a build without CUDA.
LayerChoice layer_choice(DType dtype, std::int64_t rows, std::int64_t in, std::int64_t out);
AttentionChoice attention_choice(DType dtype, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t head_dim);

}  // namespace trireme::cuda
