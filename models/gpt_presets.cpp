// The published sizes. Each is what the authors' configuration in Hugging Face's format says; the context is its
// max_position_embeddings.

#include "models/gpt_config.h"

namespace trireme {
namespace {

GptConfig gpt2(std::int64_t layers, std::int64_t heads, std::int64_t width) {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = 1024,
          .vocab = 50257,
          .dropout = 0.0,
          .bias = true,
          .activation = Activation::gelu_tanh};
}

GptConfig llama(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                std::int64_t ffn_width, std::int64_t context) {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = context,
          .vocab = 32000,
          .dropout = 0.0,
          .bias = false,
          .activation = Activation::swiglu,
          .kv_heads = kv_heads,
          .ffn_width = ffn_width,
          .norm = Norm::rms,
          .positions = PositionEncoding::rope,
          .tied = false};
}

GptConfig llama3(std::int64_t layers, std::int64_t heads, std::int64_t width, std::int64_t ffn_width,
                 const char* scaling, bool tied = false) {
  GptConfig c = llama(layers, heads, 8, width, ffn_width, 131072);
  c.vocab = 128256;
  c.rope_base = 500000;
  c.rope_scaling = scaling;
  c.tied = tied;
  return c;
}

GptConfig mistral_7b() {
  GptConfig c = llama(32, 32, 8, 4096, 14336, 32768);
  c.window = 4096;
  return c;
}

GptConfig mistral_nemo() {
  GptConfig c = llama(40, 32, 8, 5120, 14336, 131072);
  c.vocab = 131072;
  c.head_width = 128;
  c.rope_base = 1e6;
  return c;
}

GptConfig mixtral() {
  GptConfig c = llama(32, 32, 8, 4096, 14336, 32768);
  c.rope_base = 1e6;
  c.experts = {.count = 8, .top_k = 2, .norm = nn::RouterNorm::after};
  return c;
}

GptConfig qwen(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
               std::int64_t ffn_width, std::int64_t context, bool tied) {
  GptConfig c = llama(layers, heads, kv_heads, width, ffn_width, context);
  c.vocab = 151936;
  c.rope_base = 1e6;
  c.norm_eps = 1e-6;
  c.tied = tied;
  return c;
}

GptConfig qwen2(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                std::int64_t ffn_width, std::int64_t context) {
  GptConfig c = qwen(layers, heads, kv_heads, width, ffn_width, context, true);
  c.qkv_bias = true;
  return c;
}

/// Of the 7 billion parameters: a head of its own, and a vocabulary with more unused ids.
GptConfig qwen2_7b() {
  GptConfig c = qwen2(28, 28, 4, 3584, 18944, 131072);
  c.vocab = 152064;
  c.tied = false;
  return c;
}

GptConfig qwen3(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                std::int64_t ffn_width, bool tied) {
  GptConfig c = qwen(layers, heads, kv_heads, width, ffn_width, 40960, tied);
  c.head_width = 128;
  c.qk_norm = true;
  return c;
}

GptConfig qwen3_30b_a3b() {
  GptConfig c = qwen3(48, 32, 4, 2048, 6144, false);
  c.experts = {.count = 128, .top_k = 8, .aux_loss = 0.001, .norm = nn::RouterNorm::after};
  c.expert_ffn_width = 768;
  return c;
}

GptConfig gemma(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                std::int64_t ffn_width, std::int64_t context) {
  GptConfig c = llama(layers, heads, kv_heads, width, ffn_width, context);
  c.vocab = 256000;
  c.head_width = 256;
  c.activation = Activation::geglu;
  c.norm_eps = 1e-6;
  c.zero_centred_norms = true;
  c.scaled_embeddings = true;
  c.tied = true;
  return c;
}

GptConfig gemma2(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                 std::int64_t ffn_width) {
  GptConfig c = gemma(layers, heads, kv_heads, width, ffn_width, 8192);
  c.post_norms = true;
  c.query_pre_attn_scalar = 256;
  c.window = 4096;
  c.full_every = 2;
  c.attention_softcap = 50;
  c.logit_softcap = 30;
  return c;
}

GptConfig gemma3_1b() {
  GptConfig c = gemma(26, 4, 1, 1152, 6912, 32768);
  c.vocab = 262144;
  c.post_norms = true;
  c.qk_norm = true;
  c.query_pre_attn_scalar = 256;
  c.window = 512;
  c.full_every = 6;
  c.rope_base = 1e6;
  c.window_rope_base = 1e4;
  return c;
}

struct Preset {
  std::string_view name;
  GptConfig config;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"gpt2-124m", gpt2(12, 12, 768)},
      {"gpt2-350m", gpt2(24, 16, 1024)},
      {"gpt2-774m", gpt2(36, 20, 1280)},
      {"gpt2-1.5b", gpt2(48, 25, 1600)},
      {"llama-130m", llama(12, 12, 12, 768, 2048, 1024)},
      {"tinyllama-1.1b", llama(22, 32, 4, 2048, 5632, 2048)},
      {"llama2-7b", llama(32, 32, 32, 4096, 11008, 4096)},
      {"llama2-13b", llama(40, 40, 40, 5120, 13824, 4096)},
      {"llama2-70b", llama(80, 64, 8, 8192, 28672, 4096)},
      {"llama3.2-1b", llama3(16, 32, 2048, 8192, "llama3:32,8192", true)},
      {"llama3.2-3b", llama3(28, 24, 3072, 8192, "llama3:32,8192", true)},
      {"llama3.1-8b", llama3(32, 32, 4096, 14336, "llama3:8,8192")},
      {"llama3.1-70b", llama3(80, 64, 8192, 28672, "llama3:8,8192")},
      {"llama3.1-405b", llama3(126, 128, 16384, 53248, "llama3:8,8192")},
      {"mistral-7b", mistral_7b()},
      {"mistral-nemo-12b", mistral_nemo()},
      {"mixtral-8x7b", mixtral()},
      {"qwen2.5-0.5b", qwen2(24, 14, 2, 896, 4864, 32768)},
      {"qwen2.5-1.5b", qwen2(28, 12, 2, 1536, 8960, 131072)},
      {"qwen2.5-7b", qwen2_7b()},
      {"qwen3-0.6b", qwen3(28, 16, 8, 1024, 3072, true)},
      {"qwen3-1.7b", qwen3(28, 16, 8, 2048, 6144, true)},
      {"qwen3-4b", qwen3(36, 32, 8, 2560, 9728, true)},
      {"qwen3-8b", qwen3(36, 32, 8, 4096, 12288, false)},
      {"qwen3-30b-a3b", qwen3_30b_a3b()},
      {"gemma-2b", gemma(18, 8, 1, 2048, 16384, 8192)},
      {"gemma2-2b", gemma2(26, 8, 4, 2304, 9216)},
      {"gemma2-9b", gemma2(42, 16, 8, 3584, 14336)},
      {"gemma3-1b", gemma3_1b()},
  };
  return all;
}

}  // namespace

std::optional<GptConfig> gpt_preset(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.config;
  }
  return std::nullopt;
}

std::vector<std::string_view> gpt_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

}  // namespace trireme
