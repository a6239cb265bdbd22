// The configuration of a GPT, and the published sizes by name.
// Read next: models/gpt.h, the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/experts_options.h"

namespace trireme {

enum class Activation : std::uint8_t { gelu, gelu_tanh, swiglu };
enum class Norm : std::uint8_t { layer, rms };
enum class PositionEncoding : std::uint8_t { learned, rope };

struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;    ///< D, a multiple of heads
  std::int64_t context = 256;  ///< longest sequence, in tokens
  std::int64_t vocab = 50257;  ///< real tokens; the model pads them
  double dropout = 0.0;
  bool bias = true;  ///< in linear layers and layer norms
  Activation activation = Activation::gelu;
  std::optional<std::int64_t> document_separator = {};  ///< attention stays within documents, which this token ends

  // What makes it a Llama (Touvron et al. 2023); the defaults are GPT-2's.
  std::optional<std::int64_t> kv_heads = std::nullopt;   ///< key-value heads, which divide heads; not set: heads
  std::optional<std::int64_t> ffn_width = std::nullopt;  ///< F; not set: 4 D, or for swiglu see hidden()
  Norm norm = Norm::layer;
  PositionEncoding positions = PositionEncoding::learned;
  bool tied = true;  ///< the head is the embedding

  std::int64_t key_value_heads() const { return kv_heads.value_or(heads); }
  /// F. SwiGLU has three matrices where others have two, so its default is 2/3 of 4 D, rounded up to a multiple of 64.
  std::int64_t hidden() const {
    if (ffn_width) return *ffn_width;
    return activation == Activation::swiglu ? (8 * width / 3 + 63) / 64 * 64 : 4 * width;
  }
  nn::ExpertsOptions experts{};  ///< count > 0: a mixture of experts in the place of a block's Mlp
  std::int64_t moe_every = 1;    ///< N: in blocks N - 1, 2 N - 1, ... only (GShard, Lepikhin et al. 2021: 2)

  bool has_experts(std::int64_t block) const { return experts.count > 0 && (block + 1) % moe_every == 0; }
  /// How many blocks have experts.
  std::int64_t mixtures() const { return experts.count > 0 ? layers / moe_every : 0; }
};

/// The values of a choice, each with its name in flags and checkpoints.
template <class E>
using NamedValues = std::vector<std::pair<std::string, E>>;
template <class E>
NamedValues<E> named_values();
template <>
NamedValues<Activation> named_values();
template <>
NamedValues<Norm> named_values();
template <>
NamedValues<PositionEncoding> named_values();
template <>
NamedValues<nn::RouterNorm> named_values();
template <>
NamedValues<nn::BalanceScope> named_values();
template <class E>
std::string name_of(E chosen) {
  for (const auto& [name, value] : named_values<E>())
    if (value == chosen) return name;
  fail(ExitCode::internal, "model", "the choice {} has no name", static_cast<int>(chosen));
}

/// Published sizes; empty for an unknown name.
///   gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b   Radford et al. 2019, table 2
///   llama-130m                                   Zhao et al. 2024 (GaLore), table 5
///   tinyllama-1.1b                               Zhang et al. 2024, table 1
///   llama2-7b                                    Touvron et al. 2023, "Llama 2"
std::optional<GptConfig> gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();

}  // namespace trireme
