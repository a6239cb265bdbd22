#include "models/hugging_face/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/hugging_face/rope.h"

namespace trireme::hugging_face {
namespace {

constexpr const char *silu = "silu", *gelu = "gelu_pytorch_tanh";

void read_head_width(Fields& f, GptConfig& c, std::int64_t otherwise) {
  const bool divides = c.width % c.heads == 0;
  if (!f.has("head_dim") && otherwise == 0) {
    if (!divides) f.refuse("num_attention_heads", fmt::format("a divisor of hidden_size, {}", c.width));
  } else if (const std::int64_t features = f.count("head_dim", most_size, otherwise);
             !divides || features != c.width / c.heads) {
    c.head_width = features;
  }
  if (c.head_features() % 2 != 0)
    f.refuse(f.has("head_dim") ? "head_dim" : "hidden_size", "heads of an even width, as rotary positions turn pairs");
}

/// Sets window, window_every and full_every so that the window is in these blocks; false if they are in no pattern.
bool set_windows(GptConfig& c, std::int64_t window, const std::vector<bool>& has) {
  c.window = window;
  const auto fits = [&] {
    for (std::size_t i = 0; i < has.size(); ++i)
      if (c.has_window(static_cast<std::int64_t>(i)) != has[i]) return false;
    return true;
  };
  const auto blocks = static_cast<std::int64_t>(has.size());
  if (fits()) return true;
  for (std::int64_t every = 2; every <= blocks + 1; ++every) {  // blocks + 1: a pattern that is cut before a full block
    c.full_every = every;
    if (fits()) return true;
  }
  c.full_every.reset();
  for (c.window_every = 2; c.window_every <= blocks; ++c.window_every)
    if (fits()) return true;
  return false;
}

}  // namespace

GptConfig read_decoder(Fields& f, const DecoderDefaults& defaults) {
  GptConfig c;
  c.layers = f.count("num_hidden_layers", most_layers);
  c.heads = f.count("num_attention_heads", most_size);
  c.width = f.count("hidden_size", most_size);
  c.context = f.count("max_position_embeddings", most_size);
  c.vocab = f.count("vocab_size", most_size);
  c.ffn_width = f.count("intermediate_size", most_size);
  c.kv_heads = f.count("num_key_value_heads", most_size, defaults.kv_heads == 0 ? c.heads : defaults.kv_heads);
  if (c.heads % *c.kv_heads != 0)
    f.refuse("num_key_value_heads", fmt::format("a divisor of num_attention_heads, {}", c.heads));
  read_head_width(f, c, defaults.head_width);
  const bool is_gemma = defaults.activation_key != std::string_view("hidden_act");
  const std::string activation = f.text(defaults.activation_key, is_gemma ? gelu : silu);
  if (activation != silu && activation != gelu) f.refuse(defaults.activation_key, fmt::format("{} or {}", silu, gelu));
  c.activation = activation == silu ? Activation::swiglu : Activation::geglu;
  c.bias = false;
  c.norm = Norm::rms;
  c.norm_eps = f.positive("rms_norm_eps", 1e-6);
  c.tied = f.flag("tie_word_embeddings", defaults.tied);
  c.positions = PositionEncoding::rope;
  c.rope_base = defaults.rope_base;
  f.ignore({"attention_dropout"});  // only in training, where it is that program's choice
  return c;
}

void write_decoder(const GptConfig& c, nlohmann::json& json, const char* activation_key) {
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = c.key_value_heads();
  json["head_dim"] = c.head_features();
  json["hidden_size"] = c.width;
  json["intermediate_size"] = c.hidden();
  json["max_position_embeddings"] = c.context;
  json["vocab_size"] = c.vocab;
  json[activation_key] = c.activation == Activation::geglu ? gelu : silu;
  json["rms_norm_eps"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tied;
  json["attention_dropout"] = 0.0;
  write_rope(c, json);
}

void read_window(Fields& f, GptConfig& c, std::int64_t otherwise) {
  if (f.has("sliding_window"))
    c.window = f.count("sliding_window", most_size);
  else if (!f.given("sliding_window") && otherwise > 0)
    c.window = otherwise;
}

void write_window(const GptConfig& c, nlohmann::json& json) {
  json["sliding_window"] = c.window ? nlohmann::json(*c.window) : nlohmann::json();
}

void read_layer_types(Fields& f, GptConfig& c, std::int64_t window, const std::vector<bool>& otherwise,
                      const char* key) {
  std::vector<bool> has = otherwise;
  if (const auto types = f.texts("layer_types")) {
    key = "layer_types";
    if (types->size() != has.size()) f.refuse(key, fmt::format("a list of {}, num_hidden_layers", c.layers));
    for (std::size_t i = 0; i < has.size(); ++i) {
      if ((*types)[i] != "full_attention" && (*types)[i] != "sliding_attention")
        f.refuse(key, "full_attention or sliding_attention for each layer");
      has[i] = (*types)[i] == "sliding_attention";
    }
  }
  if (std::find(has.begin(), has.end(), true) == has.end()) return;
  if (!set_windows(c, window, has)) f.refuse(key, "a window in every layer, in every K-th, or in all but every K-th");
}

void write_layer_types(const GptConfig& c, nlohmann::json& json) {
  for (std::int64_t i = 0; i < c.layers; ++i)
    json["layer_types"].push_back(c.has_window(i) ? "sliding_attention" : "full_attention");
}

// ---- weights --------------------------------------------------------------------------------------------------------

namespace {

void add_attention(WeightMap& map, const GptConfig& c, const std::string& ours, const std::string& theirs) {
  const std::int64_t d = c.width, q = c.attention_width(), kv = c.key_value_heads() * c.head_features();
  const auto add = [&](const std::string& our_name, const std::string& their_name, const Shape& shape) {
    map.push_back(same_weight(ours + our_name, theirs + their_name, shape));
  };
  add("q.weight", "q_proj.weight", {q, d});
  add("k.weight", "k_proj.weight", {kv, d});
  add("v.weight", "v_proj.weight", {kv, d});
  add("proj.weight", "o_proj.weight", {d, q});
  if (c.qkv_bias) {
    add("q.bias", "q_proj.bias", {q});
    add("k.bias", "k_proj.bias", {kv});
    add("v.bias", "v_proj.bias", {kv});
  }
  if (!c.qk_norm) return;
  add("q_norm.weight", "q_norm.weight", {c.head_features()});
  add("k_norm.weight", "k_norm.weight", {c.head_features()});
}

/// gate and up are one tensor here, [2, F, D].
void add_mlp(WeightMap& map, const GptConfig& c, const std::string& ours, const std::string& theirs) {
  const std::int64_t d = c.width, f = c.hidden();
  map.push_back({.name = ours + "gate_up.weight",
                 .shape = {2, f, d},
                 .parts = {{.name = theirs + "gate_proj.weight", .shape = {f, d}, .at = {0}},
                           {.name = theirs + "up_proj.weight", .shape = {f, d}, .at = {1}}}});
  map.push_back(same_weight(ours + "down.weight", theirs + "down_proj.weight", {d, f}));
}

WeightMap dense_weights(const GptConfig& c, const std::string& base) { return decoder_weights(c, base, nullptr); }

/// Frequencies of rotary positions, which are computed from the configuration; and a copy of a tied head.
bool is_ignored(const GptConfig& c, std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || (c.tied && name == "lm_head.weight");
}

}  // namespace

WeightMap decoder_weights(const GptConfig& c, const std::string& base, AddExperts add_experts) {
  const std::int64_t d = c.width;
  WeightMap map = {same_weight("wte.weight", base + "embed_tokens.weight", {c.vocab, d})};
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = fmt::format("blocks.{}.", i), theirs = fmt::format("{}layers.{}.", base, i);
    const auto add_norm = [&](const char* our_name, const char* their_name) {
      map.push_back(same_weight(ours + our_name + ".weight", theirs + their_name + ".weight", {d}));
    };
    add_norm("norm1", "input_layernorm");
    add_attention(map, c, ours + "attn.", theirs + "self_attn.");
    if (c.post_norms) add_norm("post_norm1", "post_attention_layernorm");
    add_norm("norm2", c.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    if (c.has_experts(i) && add_experts != nullptr)
      add_experts(map, c, ours + "mlp.", theirs);
    else
      add_mlp(map, c, ours + "mlp.", theirs + "mlp.");
    if (c.post_norms) add_norm("post_norm2", "post_feedforward_layernorm");
  }
  map.push_back(same_weight("norm.weight", base + "norm.weight", {d}));
  if (!c.tied) map.push_back(same_weight("head.weight", "lm_head.weight", {c.vocab, d}));
  return map;
}

Architecture decoder(std::string_view model_type, std::string_view class_name, GptConfig (*read)(Fields&),
                     void (*write)(const GptConfig&, nlohmann::json&)) {
  return {.model_type = model_type,
          .class_name = class_name,
          .base = "model.",
          .read = read,
          .write = write,
          .weights = dense_weights,
          .ignored = is_ignored};
}

}  // namespace trireme::hugging_face
