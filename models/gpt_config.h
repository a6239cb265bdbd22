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
#include "nn/lora_options.h"
#include "nn/rope_scaling.h"

namespace trireme {

/// Between the two products of an MLP.
enum class Activation : std::uint8_t { gelu, gelu_tanh, swiglu, geglu, relu2 };
/// The kind of norm.
enum class Norm : std::uint8_t { layer, rms };
/// How a token's position enters: a learned vector per position, or rotation of q and k.
enum class PositionEncoding : std::uint8_t { learned, rope };

/// Sizes and choices of a GPT; the defaults are a small GPT-2.
struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t heads = 6;
  std::int64_t width = 384;    ///< D, a multiple of heads, unless head_width is set
  std::int64_t context = 256;  ///< longest sequence, in tokens
  std::int64_t vocab = 50257;  ///< real tokens; the model pads them
  double dropout = 0.0;
  bool bias = true;  ///< in linear layers and layer norms
  Activation activation = Activation::gelu;
  std::optional<std::int64_t> document_separator = {};  ///< attention stays within documents, which this token ends

  // What makes it a Llama (Touvron et al. 2023); the defaults are GPT-2's.
  std::optional<std::int64_t> kv_heads = std::nullopt;   ///< key-value heads, which divide heads; not set: heads
  std::optional<std::int64_t> ffn_width = std::nullopt;  ///< F; not set: 4 D, or for gated MLPs see hidden()
  Norm norm = Norm::layer;
  PositionEncoding positions = PositionEncoding::learned;
  bool tied = true;  ///< the head is the embedding

  // What later decoders have; the defaults are those of GPT-2 and Llama.
  std::optional<std::int64_t> head_width = std::nullopt;  ///< Dh, features of a head; not set: D / heads
  bool qkv_bias = false;                                  ///< biases of q, k and v also without `bias` (Qwen2)
  double norm_eps = 1e-5;             ///< of all norms: is added to the variance, or to the mean square
  double rope_base = 10000;           ///< Llama 3: 500000
  std::string rope_scaling = "none";  ///< nn::parse_rope_scaling(): "llama3:8,8192"
  bool rope_interleaved = false;      ///< pairs of neighbours, as in GPT-J, not of the halves of a head
  bool restart_positions = false;     ///< positions begin again in each document; needs document_separator
  bool qk_norm = false;               ///< RMS norms of queries and keys over a head's features (Qwen3)
  /// W: in some blocks a token sees the last W tokens only (Mistral: in all blocks).
  std::optional<std::int64_t> window = std::nullopt;
  std::int64_t window_every = 1;  ///< N: those are blocks N - 1, 2 N - 1, ...
  /// N: those are all but blocks N - 1, 2 N - 1, ... (Gemma 2: 2, Gemma 3: 6); takes the place of window_every.
  std::optional<std::int64_t> full_every = std::nullopt;
  std::optional<double> attention_softcap = std::nullopt;  ///< C: scores s become C tanh(s / C) (Gemma 2: 50)
  std::optional<double> logit_softcap = std::nullopt;      ///< the same for logits (Gemma 2: 30)

  // What makes it a Gemma (Gemma Team 2024, 2024, 2025).
  bool zero_centred_norms = false;  ///< gains are 1 + weight, and weights start at 0; of all norms
  bool post_norms = false;          ///< norms also after attention and after the MLP, before the sums (Gemma 2)
  bool scaled_embeddings = false;   ///< embeddings are multiplied by sqrt(D), rounded to the dtype of the model
  /// Scores are divided by its square root; not set: by that of Dh (Gemma 2).
  std::optional<double> query_pre_attn_scalar = std::nullopt;
  /// Base of rotary positions in blocks with a window, which then are not scaled (Gemma 3: 10000, of 1000000
  /// elsewhere).
  std::optional<double> window_rope_base = std::nullopt;

  /// Of a block, for nn::AttentionOptions. Throws ExitCode::usage if rope_scaling is not one.
  nn::Rotary rotary(std::int64_t block) const {
    if (window_rope_base && has_window(block)) return {.base = *window_rope_base, .interleaved = rope_interleaved};
    return {.base = rope_base, .scaling = nn::parse_rope_scaling(rope_scaling), .interleaved = rope_interleaved};
  }
  /// Whether tokens of a block see the window only.
  bool has_window(std::int64_t block) const {
    if (!window) return false;
    return full_every ? (block + 1) % *full_every != 0 : (block + 1) % window_every == 0;
  }
  /// Keys that a query of a whole sequence sees on average.
  double mean_keys(std::int64_t block) const {
    const auto all = static_cast<double>(context), seen = has_window(block) ? static_cast<double>(*window) : all;
    return seen >= all ? (all + 1) / 2 : seen - seen * (seen - 1) / (2 * all);
  }
  /// Whether an MLP has three matrices.
  bool gated() const { return activation == Activation::swiglu || activation == Activation::geglu; }

  std::int64_t key_value_heads() const { return kv_heads.value_or(heads); }
  std::int64_t head_features() const { return head_width ? *head_width : width / heads; }  ///< Dh
  std::int64_t attention_width() const { return heads * head_features(); }  ///< of all heads: D as a rule
  /// F. A gated MLP has three matrices where others have two, so its default is 2/3 of 4 D, rounded up to a multiple of
  /// 64.
  std::int64_t hidden() const {
    if (ffn_width) return *ffn_width;
    return gated() ? (8 * width / 3 + 63) / 64 * 64 : 4 * width;
  }
  nn::ExpertsOptions experts{};  ///< count > 0: a mixture of experts instead of a block's Mlp
  std::optional<std::int64_t> expert_ffn_width = std::nullopt;  ///< F of an expert; not set: hidden() (Qwen3-MoE)
  std::int64_t moe_every = 1;  ///< N: in blocks N - 1, 2 N - 1, ... only (GShard, Lepikhin et al. 2021: 2)

  /// F of an expert.
  std::int64_t expert_hidden() const { return expert_ffn_width ? *expert_ffn_width : hidden(); }
  nn::LoraOptions lora{};  ///< rank > 0: adapters beside linear layers; only they are trained

  /// Whether that block has a mixture of experts.
  bool has_experts(std::int64_t block) const { return experts.count > 0 && (block + 1) % moe_every == 0; }
  /// How many blocks have experts.
  std::int64_t mixtures() const { return experts.count > 0 ? layers / moe_every : 0; }
};

/// The values of a choice, each with its name in flags and checkpoints.
template <class E>
using NamedValues = std::vector<std::pair<std::string, E>>;
/// Of an enumeration below.
template <class E>
NamedValues<E> named_values();
template <>
NamedValues<Activation> named_values();  ///< gelu, gelu_tanh, swiglu
template <>
NamedValues<Norm> named_values();  ///< layer, rms
template <>
NamedValues<PositionEncoding> named_values();  ///< learned, rope
template <>
NamedValues<nn::RouterNorm> named_values();  ///< of --router-norm
template <>
NamedValues<nn::BalanceScope> named_values();  ///< of --balance-scope
/// The name of a choice.
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
///   llama2-7b, llama2-13b, llama2-70b            Touvron et al. 2023, "Llama 2"
///   llama3.1-8b, llama3.1-70b, llama3.1-405b     Grattafiori et al. 2024, table 3
///   llama3.2-1b, llama3.2-3b                     model cards of Llama 3.2
///   mistral-7b, mixtral-8x7b                     Jiang et al. 2023, table 1; Jiang et al. 2024, table 1
///   mistral-nemo-12b                             Mistral AI 2024
///   qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-7b       Yang et al. 2024, "Qwen2.5 Technical Report"
///   qwen3-0.6b, -1.7b, -4b, -8b, -30b-a3b        Yang et al. 2025, "Qwen3 Technical Report", tables 1 and 2
///   gemma-2b                                     Gemma Team 2024, table 1
///   gemma2-2b, gemma2-9b                         Gemma Team 2024, "Gemma 2", table 1
///   gemma3-1b                                    Gemma Team 2025, "Gemma 3 Technical Report", table 1
std::optional<GptConfig> gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_preset_names();  ///< all of them

}  // namespace trireme
