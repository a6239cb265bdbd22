#include "models/hugging_face/adapter_weights.h"

#include <algorithm>
#include <array>

#include "models/hugging_face/architectures.h"

namespace trireme::hugging_face {
namespace {

constexpr std::string_view ending = ".weight";

std::string layer_of(const std::string& weight) { return weight.substr(0, weight.size() - ending.size()); }

/// Whether an entry is the weight of a linear layer of a block. Those of routed experts have a dim more.
bool is_linear(const WeightEntry& entry) {
  constexpr std::array<std::string_view, 8> layers = {".attn.qkv",  ".attn.q",      ".attn.k", ".attn.v",
                                                      ".attn.proj", ".mlp.gate_up", ".mlp.up", ".mlp.down"};
  if (!entry.name.starts_with("blocks.") || !entry.name.ends_with(ending)) return false;
  const std::string layer = layer_of(entry.name);
  const bool named = std::any_of(layers.begin(), layers.end(), [&](auto name) { return layer.ends_with(name); });
  const bool several = layer.ends_with(".attn.qkv") || layer.ends_with(".mlp.gate_up");
  return named && entry.shape.dims() == (several ? 3 : 2);
}

}  // namespace

std::vector<AdaptableLayer> adaptable_layers(const GptConfig& config) {
  std::vector<AdaptableLayer> layers;
  for (const WeightEntry& entry : weights_of(config)) {
    if (!is_linear(entry)) continue;
    layers.push_back({layer_of(entry.name), entry.shape, {}});
    std::vector<std::string>& theirs = layers.back().theirs;
    for (const WeightPart& part : entry.parts)
      if (const std::string name = layer_of(part.name); theirs.empty() || theirs.back() != name) theirs.push_back(name);
  }
  return layers;
}

std::string peft_name(const std::string& layer, char matrix) {
  return "base_model.model." + layer + ".lora_" + matrix + ".weight";
}

void add_adapter(WeightMap& map, const AdaptableLayer& layer, std::int64_t rank) {
  const auto layers = static_cast<std::int64_t>(layer.theirs.size());
  const std::int64_t in = layer.weight[-1], out = layer.weight.count() / in / layers;  // of each of their layers
  if (layers == 1) {
    const std::string a = peft_name(layer.theirs[0], 'A'), b = peft_name(layer.theirs[0], 'B');
    map.push_back(same_weight(layer.ours + ".lora_a", a, {rank, in}));
    map.push_back(same_weight(layer.ours + ".lora_b", b, {out, rank}));
    if (layer.weight.dims() == 2) return;
    const std::int64_t parts = layer.weight[0], rows = out / parts;  // q, k and v
    WeightEntry& entry = map.back();
    entry.shape = {parts, rows, rank};
    entry.parts.clear();
    for (std::int64_t j = 0; j < parts; ++j)
      entry.parts.push_back({.name = b, .shape = {out, rank}, .at = {j}, .first_row = j * rows});
    return;
  }
  WeightEntry a{.name = layer.ours + ".lora_a", .shape = {layers, rank, in}, .parts = {}};
  WeightEntry b{.name = layer.ours + ".lora_b", .shape = {layers, out, rank}, .parts = {}};
  for (std::int64_t j = 0; j < layers; ++j) {
    const std::string& theirs = layer.theirs[static_cast<std::size_t>(j)];
    if (theirs.empty()) continue;
    a.parts.push_back({.name = peft_name(theirs, 'A'), .shape = {rank, in}, .at = {j}});
    b.parts.push_back({.name = peft_name(theirs, 'B'), .shape = {out, rank}, .at = {j}});
  }
  map.push_back(std::move(a));
  map.push_back(std::move(b));
}

}  // namespace trireme::hugging_face
