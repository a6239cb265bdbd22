// Decoders with experts: Mixtral (Jiang et al. 2024) and Qwen3-MoE (Yang et al. 2025). Each expert's matrices are
// tensors of their own there; here the experts of a block are one tensor, [E, 2, F, D] and [E, D, F].
#include <fmt/format.h>

#include "models/hugging_face/decoder.h"
#include "models/hugging_face/rope.h"

namespace trireme::hugging_face {
namespace {

// ---- config.json ----------------------------------------------------------------------------------------------------

/// The number of experts, and of those that compute a token. The losses that balance them are the training program's.
void read_experts(Fields& f, GptConfig& c, const char* count_key, std::int64_t count, std::int64_t chosen) {
  c.experts.count = f.count(count_key, most_experts, count);
  c.experts.top_k = f.count("num_experts_per_tok", most_experts, chosen);
  if (c.experts.top_k > c.experts.count)
    f.refuse("num_experts_per_tok", fmt::format("at most {}, {}", count_key, c.experts.count));
  f.ignore({"router_aux_loss_coef", "output_router_logits"});
}

GptConfig read_mixtral(Fields& f) {
  GptConfig c = read_decoder(f, {.kv_heads = 8, .rope_base = 1e6});
  read_rope(f, c);
  read_window(f, c, 0);
  read_experts(f, c, "num_local_experts", 8, 2);
  f.require("router_jitter_noise", 0.0);
  c.experts.norm = nn::RouterNorm::after;
  return c;
}

void write_mixtral(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  write_window(c, json);
  json["num_local_experts"] = c.experts.count;
  json["num_experts_per_tok"] = c.experts.top_k;
  json["router_aux_loss_coef"] = c.experts.aux_loss;
  json["router_jitter_noise"] = 0.0;
  json["output_router_logits"] = false;
}

GptConfig read_qwen3_moe(Fields& f) {
  GptConfig c = read_decoder(f, {.kv_heads = 4});
  read_rope(f, c);
  c.expert_ffn_width = f.count("moe_intermediate_size", most_size, 768);
  if (f.flag("use_sliding_window", false)) read_window(f, c, 4096);
  f.ignore({"sliding_window", "max_window_layers"});
  const bool as_mixtral = f.has("num_local_experts");  // transformers 5 writes this name
  read_experts(f, c, as_mixtral ? "num_local_experts" : "num_experts", 128, 8);
  f.require("num_experts", c.experts.count);
  c.experts.norm = f.flag("norm_topk_prob", false) ? nn::RouterNorm::after : nn::RouterNorm::before;
  c.qk_norm = true;
  f.require("attention_bias", false);
  c.moe_every = f.count("decoder_sparse_step", most_layers, 1);
  f.require("mlp_only_layers", nlohmann::json::array());
  return c;
}

void write_qwen3_moe(const GptConfig& c, nlohmann::json& json) {
  write_decoder(c, json);
  json["moe_intermediate_size"] = c.expert_hidden();
  json["use_sliding_window"] = c.window.has_value();
  write_window(c, json);
  json["num_experts"] = c.experts.count;
  json["num_experts_per_tok"] = c.experts.top_k;
  json["norm_topk_prob"] = c.experts.norm == nn::RouterNorm::after;
  json["attention_bias"] = false;
  json["decoder_sparse_step"] = c.moe_every;
  json["mlp_only_layers"] = nlohmann::json::array();
  json["router_aux_loss_coef"] = c.experts.aux_loss;
  json["output_router_logits"] = false;
}

// ---- weights --------------------------------------------------------------------------------------------------------

/// Their names within a block.
struct ExpertNames {
  const char *gate, *up, *down;
};

void add_experts(WeightMap& map, const GptConfig& c, const std::string& ours, const std::string& mlp,
                 const ExpertNames& names) {
  const std::int64_t d = c.width, f = c.expert_hidden(), count = c.experts.count;
  map.push_back(same_weight(ours + "router.weight", mlp + "gate.weight", {count, d}));
  WeightEntry widen{.name = ours + "gate_up.weight", .shape = {count, 2, f, d}, .parts = {}};
  WeightEntry narrow{.name = ours + "down.weight", .shape = {count, d, f}, .parts = {}};
  for (std::int64_t e = 0; e < count; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", mlp, e);
    widen.parts.push_back({.name = fmt::format("{}{}.weight", expert, names.gate), .shape = {f, d}, .at = {e, 0}});
    widen.parts.push_back({.name = fmt::format("{}{}.weight", expert, names.up), .shape = {f, d}, .at = {e, 1}});
    narrow.parts.push_back({.name = fmt::format("{}{}.weight", expert, names.down), .shape = {d, f}, .at = {e}});
  }
  map.push_back(std::move(widen));
  map.push_back(std::move(narrow));
}

WeightMap mixtral_weights(const GptConfig& config, const std::string& base) {
  return decoder_weights(config, base,
                         [](WeightMap& map, const GptConfig& c, const std::string& ours, const std::string& layer) {
                           add_experts(map, c, ours, layer + "block_sparse_moe.", {"w1", "w3", "w2"});
                         });
}

WeightMap qwen3_moe_weights(const GptConfig& config, const std::string& base) {
  return decoder_weights(config, base,
                         [](WeightMap& map, const GptConfig& c, const std::string& ours, const std::string& layer) {
                           add_experts(map, c, ours, layer + "mlp.", {"gate_proj", "up_proj", "down_proj"});
                         });
}

}  // namespace

Architecture mixtral() {
  Architecture row = decoder("mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral);
  row.weights = mixtral_weights;
  return row;
}

Architecture qwen3_moe() {
  Architecture row = decoder("qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe);
  row.weights = qwen3_moe_weights;
  return row;
}

}  // namespace trireme::hugging_face
