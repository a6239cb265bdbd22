// GPT-2 (Radford et al. 2019). Its matrices are stored as [in, out], transposed; q, k and v are one matrix.
#include <fmt/format.h>

#include "models/hugging_face/architectures.h"

namespace trireme::hugging_face {
namespace {

GptConfig read_gpt2(Fields& f) {
  GptConfig c;
  c.layers = f.count("n_layer", most_layers);
  c.heads = f.count("n_head", most_size);
  c.width = f.count("n_embd", most_size);
  c.context = f.count("n_positions", most_size);
  c.vocab = f.count("vocab_size", most_size);
  if (c.width % c.heads != 0) f.refuse("n_head", fmt::format("a divisor of n_embd, {}", c.width));
  c.ffn_width = f.count("n_inner", most_size, 4 * c.width);
  const std::string activation = f.text("activation_function", "gelu_new");
  c.activation = activation == "gelu"    ? Activation::gelu
                 : activation == "relu2" ? Activation::relu2
                                         : Activation::gelu_tanh;
  if (c.activation == Activation::gelu_tanh && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    f.refuse("activation_function", "gelu_new, gelu_pytorch_tanh, gelu or relu2");
  c.norm_eps = f.positive("layer_norm_epsilon", 1e-5);
  c.tied = f.flag("tie_word_embeddings", true);
  f.require("scale_attn_weights", true);
  f.require("scale_attn_by_inverse_layer_idx", false);
  f.require("add_cross_attention", false);
  // Dropout is the training program's choice. The others concern parts that a causal model does not have, or the
  // dtype in which scores are computed, here always at least f32.
  f.ignore({"resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj", "summary_activation",
            "summary_proj_to_labels", "summary_first_dropout", "n_ctx", "reorder_and_upcast_attn"});
  return c;
}

void write_gpt2(const GptConfig& c, nlohmann::json& json) {
  json["n_layer"] = c.layers;
  json["n_head"] = c.heads;
  json["n_embd"] = c.width;
  json["n_positions"] = c.context;
  json["vocab_size"] = c.vocab;
  json["n_inner"] = c.hidden();
  json["activation_function"] = c.activation == Activation::gelu    ? "gelu"
                                : c.activation == Activation::relu2 ? "relu2"
                                                                    : "gelu_new";
  json["layer_norm_epsilon"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tied;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = c.dropout;
}

/// A matrix [out, in] that is stored as [in, out].
WeightEntry transposed(std::string ours, std::string theirs, std::int64_t out, std::int64_t in) {
  WeightEntry entry = same_weight(std::move(ours), std::move(theirs), {out, in});
  entry.parts.front().shape = {in, out};
  entry.parts.front().transposed = true;
  return entry;
}

/// q, k and v [3, D, D] and their biases [3, D], which are one matrix and one bias there.
void add_packed(WeightMap& map, const std::string& ours, const std::string& theirs, std::int64_t d) {
  WeightEntry weight{.name = ours + ".weight", .shape = {3, d, d}, .parts = {}};
  WeightEntry bias{.name = ours + ".bias", .shape = {3, d}, .parts = {}};
  for (std::int64_t j = 0; j < 3; ++j) {
    weight.parts.push_back(
        {.name = theirs + ".weight", .shape = {d, 3 * d}, .at = {j}, .first_row = j * d, .transposed = true});
    bias.parts.push_back({.name = theirs + ".bias", .shape = {3 * d}, .at = {j}, .first_row = j * d});
  }
  map.push_back(std::move(weight));
  map.push_back(std::move(bias));
}

WeightMap gpt2_weights(const GptConfig& c, const std::string& base) {
  const std::int64_t d = c.width, f = c.hidden();
  WeightMap map = {same_weight("wte.weight", base + "wte.weight", {c.vocab, d}),
                   same_weight("wpe.weight", base + "wpe.weight", {c.context, d})};
  const auto add_norm = [&](const std::string& ours, const std::string& theirs) {
    for (const char* kind : {".weight", ".bias"}) map.push_back(same_weight(ours + kind, theirs + kind, {d}));
  };
  const auto add_linear = [&](const std::string& ours, const std::string& theirs, std::int64_t out, std::int64_t in) {
    map.push_back(transposed(ours + ".weight", theirs + ".weight", out, in));
    map.push_back(same_weight(ours + ".bias", theirs + ".bias", {out}));
  };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("{}h.{}.", base, i);
    add_norm(ours + "norm1", theirs + "ln_1");
    add_packed(map, ours + "attn.qkv", theirs + "attn.c_attn", d);
    add_linear(ours + "attn.proj", theirs + "attn.c_proj", d, d);
    add_norm(ours + "norm2", theirs + "ln_2");
    add_linear(ours + "mlp.up", theirs + "mlp.c_fc", f, d);
    add_linear(ours + "mlp.down", theirs + "mlp.c_proj", d, f);
  }
  add_norm("norm", base + "ln_f");
  if (!c.tied) map.push_back(same_weight("head.weight", "lm_head.weight", {c.vocab, d}));
  return map;
}

/// The causal mask, and the number for what it hides.
bool ignored(const GptConfig& c, std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || (c.tied && name == "lm_head.weight");
}

}  // namespace

Architecture gpt2() {
  return {.model_type = "gpt2",
          .class_name = "GPT2LMHeadModel",
          .base = "transformer.",
          .read = read_gpt2,
          .write = write_gpt2,
          .weights = gpt2_weights,
          .ignored = ignored};
}

}  // namespace trireme::hugging_face
