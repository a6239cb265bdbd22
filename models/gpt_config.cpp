#include "models/gpt_config.h"

#include <array>

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

struct Preset {
  std::string_view name;
  GptConfig config;
};

const std::array<Preset, 7>& presets() {
  static const std::array<Preset, 7> all = {{
      {"gpt2-124m", gpt2(12, 12, 768)},
      {"gpt2-350m", gpt2(24, 16, 1024)},
      {"gpt2-774m", gpt2(36, 20, 1280)},
      {"gpt2-1.5b", gpt2(48, 25, 1600)},
      {"llama-130m", llama(12, 12, 12, 768, 2048, 1024)},
      {"tinyllama-1.1b", llama(22, 32, 4, 2048, 5632, 2048)},
      {"llama2-7b", llama(32, 32, 32, 4096, 11008, 4096)},
  }};
  return all;
}

}  // namespace

template <>
NamedValues<Activation> named_values() {
  return {{"gelu", Activation::gelu}, {"gelu-tanh", Activation::gelu_tanh}, {"swiglu", Activation::swiglu}};
}
template <>
NamedValues<Norm> named_values() {
  return {{"layer", Norm::layer}, {"rms", Norm::rms}};
}
template <>
NamedValues<PositionEncoding> named_values() {
  return {{"learned", PositionEncoding::learned}, {"rope", PositionEncoding::rope}};
}
template <>
NamedValues<nn::RouterNorm> named_values() {
  return {{"before", nn::RouterNorm::before}, {"after", nn::RouterNorm::after}};
}
template <>
NamedValues<nn::BalanceScope> named_values() {
  return {{"sequence", nn::BalanceScope::sequence}, {"batch", nn::BalanceScope::batch}};
}

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
