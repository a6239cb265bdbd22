#include "models/gpt_config.h"

#include <array>

namespace trireme {
namespace {

struct Preset {
  std::string_view name;
  std::int64_t layers, heads, width;
};
constexpr std::array<Preset, 4> presets = {{
    {"gpt2-124m", 12, 12, 768},
    {"gpt2-350m", 24, 16, 1024},
    {"gpt2-774m", 36, 20, 1280},
    {"gpt2-1.5b", 48, 25, 1600},
}};

}  // namespace

std::optional<GptConfig> gpt_preset(std::string_view name) {
  for (const Preset& preset : presets) {
    if (preset.name == name) {
      return GptConfig{.layers = preset.layers,
                       .heads = preset.heads,
                       .width = preset.width,
                       .context = 1024,
                       .vocab = 50257,
                       .dropout = 0.0,
                       .bias = true,
                       .activation = Activation::gelu_tanh};
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> gpt_preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) names.push_back(preset.name);
  return names;
}

}  // namespace trireme
