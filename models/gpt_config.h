// What a GPT is made of, and the published sizes by name. The model itself is in models/gpt.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme {

enum class Activation : std::uint8_t { gelu, gelu_tanh };

struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;    ///< D, a multiple of heads
  std::int64_t context = 256;  ///< longest sequence, in tokens
  std::int64_t vocab = 50257;  ///< real tokens; the model pads them
  double dropout = 0.0;
  bool bias = true;
  Activation activation = Activation::gelu;
};

/// GPT-2 sizes (Radford et al. 2019, table 2): gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b; empty for an unknown name.
std::optional<GptConfig> gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();

}  // namespace trireme
