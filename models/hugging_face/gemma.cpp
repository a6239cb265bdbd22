// Gemma 1 to 3 (Gemma Team 2024, 2024, 2025): norms whose gains are 1 + weight, scaled embeddings, gated MLPs with
// GELU. Gemma 2 also has norms after attention and MLP, a window in every other layer, a scale of scores and soft
// caps; Gemma 3 a window in five of six layers, which have a base of rotary positions of their own, and norms of q and
// k.
#include <cmath>

#include "models/hugging_face/decoder.h"
#include "models/hugging_face/rope.h"

namespace trireme::hugging_face {
namespace {

constexpr const char* activation_key = "hidden_activation";

GptConfig read_any_gemma(Fields& f, std::int64_t kv_heads) {
  GptConfig c =
      read_decoder(f, {.kv_heads = kv_heads, .head_width = 256, .tied = true, .activation_key = activation_key});
  if (f.has(activation_key))
    f.ignore({"hidden_act"});  // the other one counts
  else
    f.require("hidden_act", "gelu_pytorch_tanh");
  c.zero_centred_norms = true;
  c.scaled_embeddings = true;
  f.require("attention_bias", false);
  f.require("use_bidirectional_attention", false);
  return c;
}

GptConfig read_gemma(Fields& f) {
  GptConfig c = read_any_gemma(f, 16);
  read_rope(f, c);
  return c;
}

void write_gemma(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json, activation_key);
  json["hidden_act"] = json[activation_key];
  json["attention_bias"] = false;
}

/// What Gemma 2 and 3 have. `every`: one of so many layers sees all tokens, if the file does not say.
void read_newer_gemma(Fields& f, GptConfig& c, std::int64_t every) {
  c.post_norms = true;
  const double scalar = f.positive("query_pre_attn_scalar", 256);
  if (scalar != static_cast<double>(c.head_features())) c.query_pre_attn_scalar = scalar;
  std::vector<bool> has(static_cast<std::size_t>(c.layers));
  for (std::size_t i = 0; i < has.size(); ++i) has[i] = (i + 1) % static_cast<std::size_t>(every) != 0;
  read_layer_types(f, c, f.count("sliding_window", most_size, 4096), has, "num_hidden_layers");
}

/// `otherwise`: of a file that does not say; 0: none.
void read_softcaps(Fields& f, GptConfig& c, double attention, double logits) {
  const auto read = [&](const char* key, double otherwise) -> std::optional<double> {
    if (f.has(key)) return f.positive(key);
    return f.given(key) || otherwise == 0 ? std::nullopt : std::optional(otherwise);
  };
  c.attention_softcap = read("attn_logit_softcapping", attention);
  c.logit_softcap = read("final_logit_softcapping", logits);
}

void write_newer_gemma(const GptConfig& c, nlohmann::json& json) {
  write_gemma(c, json);
  json.erase("hidden_act");
  const auto or_null = [](const auto& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  const double scalar = c.query_pre_attn_scalar.value_or(static_cast<double>(c.head_features()));
  const bool whole = scalar == std::floor(scalar) && scalar < 1e9;  // transformers takes nothing else
  json["query_pre_attn_scalar"] = whole ? nlohmann::json(static_cast<std::int64_t>(scalar)) : nlohmann::json(scalar);
  json["attn_logit_softcapping"] = or_null(c.attention_softcap);
  json["final_logit_softcapping"] = or_null(c.logit_softcap);
  json["sliding_window"] = c.window.value_or(4096);
  write_layer_types(c, json);
}

GptConfig read_gemma2(Fields& f) {
  GptConfig c = read_any_gemma(f, 4);
  read_rope(f, c);
  read_newer_gemma(f, c, 2);
  read_softcaps(f, c, 50, 30);
  f.ignore({"cache_implementation"});
  return c;
}

GptConfig read_gemma3(Fields& f) {
  GptConfig c = read_any_gemma(f, 4);
  const std::int64_t every = f.count("sliding_window_pattern", most_layers, 6);
  read_newer_gemma(f, c, f.count("_sliding_window_pattern", most_layers, every));
  c.rope_base = 1e6;
  double window_base = 10000;
  read_rope(f, c, &window_base);
  if (c.window) c.window_rope_base = window_base;
  read_softcaps(f, c, 0, 0);
  c.qk_norm = true;
  return c;
}

void write_gemma3(const GptConfig& c, nlohmann::json& json) {
  write_newer_gemma(c, json);
  json["rope_local_base_freq"] = c.window_rope_base.value_or(c.rope_base);
}

}  // namespace

Architecture gemma() { return decoder("gemma", "GemmaForCausalLM", read_gemma, write_gemma); }
Architecture gemma2() { return decoder("gemma2", "Gemma2ForCausalLM", read_gemma2, write_newer_gemma); }
Architecture gemma3_text() { return decoder("gemma3_text", "Gemma3ForCausalLM", read_gemma3, write_gemma3); }

}  // namespace trireme::hugging_face
