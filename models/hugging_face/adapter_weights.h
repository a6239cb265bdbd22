// Where the matrices of adapters (nn/lora.h) lie in PEFT's files: a WeightMap, which the same code reads and writes.
//
//   ours                              PEFT's
//   blocks.0.attn.q.lora_a [r, D]     base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight [r, D]
//   blocks.0.mlp.gate_up.lora_a       ...gate_proj.lora_A.weight [r, D] and ...up_proj.lora_A.weight [r, D]
//     [2, r, D]
//   blocks.0.attn.qkv.lora_b          base_model.model.transformer.h.0.attn.c_attn.lora_B.weight [3 D, r]
//     [3, D, r] (GPT-2)
//
// Read next: models/weight_map.h, models/hugging_face/adapter.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "models/weight_map.h"

namespace trireme::hugging_face {

/// A linear layer of a block, which may have an adapter.
struct AdaptableLayer {
  std::string ours;  ///< "blocks.0.mlp.gate_up"
  Shape weight;      ///< [out.., in]
  /// One name: one pair of matrices, also for q, k and v of GPT-2. Two names: ours are gate and up, and each has its
  /// own pair.
  std::vector<std::string> theirs;
};

/// All of them, in the order of the model. Routed experts cannot have adapters. Throws as weights_of().
std::vector<AdaptableLayer> adaptable_layers(const GptConfig& config);

/// The name of a matrix in PEFT's file; `matrix` is A or B.
std::string peft_name(const std::string& layer, char matrix);

/// Appends lora_a and lora_b of a layer to a map, without the parts of those of `layer.theirs` that are empty.
void add_adapter(WeightMap& map, const AdaptableLayer& layer, std::int64_t rank);

}  // namespace trireme::hugging_face
