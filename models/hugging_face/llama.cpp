// Llama (Touvron et al. 2023) and dense decoders after it, which differ from it in few places: Mistral (Jiang et al.
// 2023) has a window, Qwen2 (Yang et al. 2024) biases of q, k and v, Qwen3 (Yang et al. 2025) norms of q and k.
#include "models/hugging_face/decoder.h"
#include "models/hugging_face/rope.h"

namespace trireme::hugging_face {
namespace {

GptConfig read_llama(Fields& f) {
  GptConfig c = read_decoder(f, {});
  read_rope(f, c);
  f.require("attention_bias", false);
  f.require("mlp_bias", false);
  f.ignore({"pretraining_tp"});  // how a product is cut
  return c;
}

void write_llama(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
}

GptConfig read_mistral(Fields& f) {
  GptConfig c = read_decoder(f, {.kv_heads = 8});
  read_rope(f, c);
  read_window(f, c, 4096);
  return c;
}

void write_mistral(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  write_window(c, json);
}

/// The window of layer_types, or of use_sliding_window in the layers from max_window_layers on.
void read_qwen_window(Fields& f, GptConfig& c) {
  const bool used = f.flag("use_sliding_window", false);
  const std::int64_t window = f.count("sliding_window", most_size, 4096);
  const double first = f.number("max_window_layers", 28);
  std::vector<bool> has(static_cast<std::size_t>(c.layers));
  for (std::size_t i = 0; i < has.size(); ++i) has[i] = used && static_cast<double>(i) >= first;
  read_layer_types(f, c, window, has, "max_window_layers");
  if (c.window && !used) f.refuse("use_sliding_window", "true, as layer_types has sliding_attention");
}

void write_qwen_window(const GptConfig& c, nlohmann::json& json) {
  json["use_sliding_window"] = c.window.has_value();
  write_window(c, json);
  json["max_window_layers"] = c.window ? 0 : c.layers;
  write_layer_types(c, json);
}

GptConfig read_qwen2(Fields& f) {
  GptConfig c = read_decoder(f, {.kv_heads = 32});
  read_rope(f, c);
  read_qwen_window(f, c);
  c.qkv_bias = true;
  return c;
}

void write_qwen2(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  write_qwen_window(c, json);
}

GptConfig read_qwen3(Fields& f) {
  GptConfig c = read_decoder(f, {.kv_heads = 32, .head_width = 128});
  read_rope(f, c);
  f.require("attention_bias", false);
  read_qwen_window(f, c);
  c.qk_norm = true;
  return c;
}

void write_qwen3(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  json["attention_bias"] = false;
  write_qwen_window(c, json);
}

}  // namespace

Architecture llama() { return decoder("llama", "LlamaForCausalLM", read_llama, write_llama); }
Architecture mistral() { return decoder("mistral", "MistralForCausalLM", read_mistral, write_mistral); }
Architecture qwen2() { return decoder("qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2); }
Architecture qwen3() { return decoder("qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3); }

}  // namespace trireme::hugging_face
