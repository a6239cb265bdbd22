// What the architectures after Llama have in common in config.json, and the map of their weights: they use the same
// names for the same weights.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: models/hugging_face/decoder.cpp, then llama.cpp, gemma.cpp and experts.cpp.
#pragma once

#include <string>
#include <vector>

#include "models/hugging_face/architectures.h"

namespace trireme::hugging_face {

/// Where architectures differ in what all have.
struct DecoderDefaults {
  std::int64_t kv_heads = 0;    ///< of a model that does not say; 0: as many as heads
  std::int64_t head_width = 0;  ///< the same; 0: hidden_size / num_attention_heads
  double rope_base = 10000;     ///< the same
  bool tied = false;            ///< the same
  const char* activation_key = "hidden_act";
};

/// Reads sizes, activation, norms and head. Rotary positions: read_rope(), afterwards.
GptConfig read_decoder(Fields& fields, const DecoderDefaults& defaults);
/// The reverse; with rotary positions. `activation_key` as above.
void write_decoder(const GptConfig& config, nlohmann::json& json, const char* activation_key = "hidden_act");

/// A window in all blocks; null: none. `otherwise`: of a model that does not say; 0: none.
void read_window(Fields& fields, GptConfig& config, std::int64_t otherwise);
void write_window(const GptConfig& config, nlohmann::json& json);  ///< the number, or null

/// Which blocks have the window, from layer_types; `otherwise`: of a model without this field. Throws ExitCode::data,
/// naming the field, or `key` if there is none, for blocks in no regular pattern.
void read_layer_types(Fields& fields, GptConfig& config, std::int64_t window, const std::vector<bool>& otherwise,
                      const char* key);
void write_layer_types(const GptConfig& config, nlohmann::json& json);  ///< the list of the window's blocks

/// A row of architectures() whose weights have these names.
Architecture decoder(std::string_view model_type, std::string_view class_name, GptConfig (*read)(Fields&),
                     void (*write)(const GptConfig&, nlohmann::json&));

/// The weights of the experts of a block, `theirs` being the name of its MLP; nothing if the model has none.
using AddExperts = void (*)(WeightMap& map, const GptConfig& config, const std::string& ours, const std::string& layer);
/// All weights of a decoder.
WeightMap decoder_weights(const GptConfig& config, const std::string& base, AddExperts add_experts);

}  // namespace trireme::hugging_face
