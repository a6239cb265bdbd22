#include "models/gguf/architectures.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "models/config_difference.h"
#include "nn/rope_scaling.h"

namespace trireme::gguf {
namespace {

constexpr std::int64_t most_size = (std::int64_t{1} << 31) - 1, most_layers = 1 << 12, most_experts = 1 << 12;

// ---- keys -----------------------------------------------------------------------------------------------------------

GptConfig read_sizes(const GgufKeys& keys, const std::string& name) {
  GptConfig c;
  c.layers = keys.count(name + ".block_count", most_layers);
  c.heads = keys.count(name + ".attention.head_count", most_size);
  c.kv_heads = keys.count(name + ".attention.head_count_kv", most_size, c.heads);
  c.width = keys.count(name + ".embedding_length", most_size);
  c.ffn_width = keys.count(name + ".feed_forward_length", most_size);
  c.context = keys.count(name + ".context_length", most_size);
  c.vocab = 1;  // of the tensors
  if (c.heads % *c.kv_heads != 0)
    keys.refuse(name + ".attention.head_count_kv", fmt::format("a divisor of the {} heads", c.heads));
  return c;
}

void write_sizes(const GptConfig& c, GgufValues& values, const std::string& name) {
  const auto count = [&](const char* key, std::int64_t value) {
    values.add(name + key, static_cast<std::uint32_t>(value));
  };
  count(".block_count", c.layers);
  count(".context_length", c.context);
  count(".embedding_length", c.width);
  count(".feed_forward_length", c.has_experts(0) ? c.expert_hidden() : c.hidden());
  count(".attention.head_count", c.heads);
  count(".attention.head_count_kv", c.key_value_heads());
}

/// Rotary positions. The scaling of Llama 3 is a tensor; its parameters are in a key of ours.
constexpr const char* scaling_key = "trireme.rope_scaling";

void read_scaling(const GgufKeys& keys, const std::string& name, GptConfig& c) {
  const std::string type = keys.text(name + ".rope.scaling.type", "none");
  if (type == "linear") {
    c.rope_scaling = fmt::format("linear:{}", keys.positive(name + ".rope.scaling.factor"));
  } else if (type == "yarn") {
    c.rope_scaling = fmt::format("yarn:{},{},{},{}", keys.positive(name + ".rope.scaling.factor"),
                                 keys.count(name + ".rope.scaling.original_context_length", most_size),
                                 keys.positive(name + ".rope.scaling.yarn_beta_slow", 1),
                                 keys.positive(name + ".rope.scaling.yarn_beta_fast", 32));
  } else if (type != "none") {
    keys.refuse(name + ".rope.scaling.type", "none, linear or yarn");
  }
  if (!keys.has(scaling_key)) return;
  c.rope_scaling = keys.text(scaling_key);
  try {
    nn::parse_rope_scaling(c.rope_scaling);
  } catch (const Error&) { keys.refuse(scaling_key, "a scaling, as in llama3:8,8192"); }
}

void write_scaling(const GptConfig& c, GgufValues& values, const std::string& name) {
  using Kind = nn::RopeScaling::Kind;
  const nn::RopeScaling s = nn::parse_rope_scaling(c.rope_scaling);
  if (s.kind == Kind::none) return;
  if (s.kind == Kind::llama3) return values.add(scaling_key, std::string_view(c.rope_scaling));
  const auto number = [&](const char* key, double value) {
    values.add(name + ".rope.scaling." + key, static_cast<float>(value));
  };
  values.add(name + ".rope.scaling.type", s.kind == Kind::linear ? "linear" : "yarn");
  number("factor", s.factor);
  if (s.kind == Kind::linear) return;
  values.add(name + ".rope.scaling.original_context_length", static_cast<std::uint32_t>(s.original));
  number("yarn_beta_slow", s.low);
  number("yarn_beta_fast", s.high);
}

/// What all but GPT-2 have.
GptConfig read_decoder(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_sizes(keys, name);
  c.bias = false;
  c.norm = Norm::rms;
  c.norm_eps = keys.positive(name + ".attention.layer_norm_rms_epsilon");
  c.positions = PositionEncoding::rope;
  c.rope_base = keys.positive(name + ".rope.freq_base", 10000);
  if (c.rope_base <= 1) keys.refuse(name + ".rope.freq_base", "a number above 1");
  c.activation = Activation::swiglu;
  const std::string key_length = name + ".attention.key_length";
  if (!keys.has(key_length) && c.width % c.heads != 0)
    keys.refuse(key_length,
                fmt::format("the features of a head, as {} heads do not divide the width {}", c.heads, c.width));
  c.head_width = keys.count(key_length, most_size, std::max<std::int64_t>(c.width / c.heads, 1));
  for (const char* same : {".attention.value_length", ".rope.dimension_count"})
    if (keys.count(name + same, most_size, *c.head_width) != *c.head_width)
      keys.refuse(name + same, fmt::format("{}, the features of a head", *c.head_width));
  read_scaling(keys, name, c);
  return c;
}

void write_decoder(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_sizes(c, values, name);
  values.add(name + ".attention.layer_norm_rms_epsilon", static_cast<float>(c.norm_eps));
  for (const char* key : {".attention.key_length", ".attention.value_length", ".rope.dimension_count"})
    values.add(name + key, static_cast<std::uint32_t>(c.head_features()));
  values.add(name + ".rope.freq_base", static_cast<float>(c.rope_base));
  write_scaling(c, values, name);
}

void read_experts(const GgufKeys& keys, const std::string& name, GptConfig& c) {
  c.experts.count = keys.count(name + ".expert_count", most_experts);
  c.experts.top_k = keys.count(name + ".expert_used_count", c.experts.count);
  c.experts.norm = nn::RouterNorm::after;
}

void write_experts(const GptConfig& c, GgufValues& values, const std::string& name) {
  values.add(name + ".expert_count", static_cast<std::uint32_t>(c.experts.count));
  values.add(name + ".expert_used_count", static_cast<std::uint32_t>(c.experts.top_k));
}

GptConfig read_llama(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_decoder(keys, name);
  const GgufValue* experts = keys.find(name + ".expert_count");
  if (experts != nullptr && !(experts->is_whole() && experts->whole() == 0)) read_experts(keys, name, c);
  return c;
}

void write_llama(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_decoder(c, values, name);
  if (c.experts.count > 0) write_experts(c, values, name);
}

GptConfig read_qwen2(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_decoder(keys, name);
  c.qkv_bias = true;
  c.head_width = std::max<std::int64_t>(c.width / c.heads, 1);  // its attention is as wide as the model
  return c;
}

GptConfig read_qwen3(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_decoder(keys, name);
  c.qk_norm = true;
  return c;
}

GptConfig read_qwen3moe(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_qwen3(keys, name);
  read_experts(keys, name, c);
  c.expert_ffn_width = keys.count(name + ".expert_feed_forward_length", most_size);
  c.ffn_width = c.expert_ffn_width;  // all blocks have experts
  return c;
}

void write_qwen3moe(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_decoder(c, values, name);
  write_experts(c, values, name);
  values.add(name + ".expert_feed_forward_length", static_cast<std::uint32_t>(c.expert_hidden()));
}

GptConfig read_gemma(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_decoder(keys, name);
  c.activation = Activation::geglu;
  c.zero_centred_norms = true;
  c.scaled_embeddings = true;
  return c;
}

/// llama.cpp scales the scores of one size by width / heads, of others by the features of a head.
void set_scale(GptConfig& c, std::int64_t layers_of_27b) {
  c.query_pre_attn_scalar = static_cast<double>(c.layers == layers_of_27b ? c.width / c.heads : c.head_features());
}

GptConfig read_gemma2(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_gemma(keys, name);
  c.post_norms = true;
  c.window = keys.count(name + ".attention.sliding_window", most_size, 4096);
  c.full_every = 2;
  c.attention_softcap = keys.positive(name + ".attn_logit_softcapping", 50);
  c.logit_softcap = keys.positive(name + ".final_logit_softcapping", 30);
  set_scale(c, 46);
  return c;
}

void write_gemma2(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_decoder(c, values, name);
  values.add(name + ".attention.sliding_window", static_cast<std::uint32_t>(c.window.value_or(4096)));
  values.add(name + ".attn_logit_softcapping", static_cast<float>(c.attention_softcap.value_or(50)));
  values.add(name + ".final_logit_softcapping", static_cast<float>(c.logit_softcap.value_or(30)));
}

GptConfig read_gemma3(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_gemma(keys, name);
  c.post_norms = true;
  c.qk_norm = true;
  set_scale(c, 62);
  if (keys.has(name + ".final_logit_softcapping")) c.logit_softcap = keys.positive(name + ".final_logit_softcapping");
  if (!keys.has(name + ".attention.sliding_window")) return c;
  c.window = keys.count(name + ".attention.sliding_window", most_size);
  c.full_every = 6;
  c.window_rope_base = keys.positive(name + ".rope.freq_base_swa", 10000);
  return c;
}

void write_gemma3(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_decoder(c, values, name);
  if (c.logit_softcap) values.add(name + ".final_logit_softcapping", static_cast<float>(*c.logit_softcap));
  if (!c.window) return;
  values.add(name + ".attention.sliding_window", static_cast<std::uint32_t>(*c.window));
  values.add(name + ".rope.freq_base_swa", static_cast<float>(c.window_rope_base.value_or(c.rope_base)));
}

GptConfig read_gpt2(const GgufKeys& keys, const std::string& name) {
  GptConfig c = read_sizes(keys, name);
  if (c.width % c.heads != 0)
    keys.refuse(name + ".attention.head_count", fmt::format("a divisor of the width {}", c.width));
  if (*c.kv_heads != c.heads)
    keys.refuse(name + ".attention.head_count_kv", fmt::format("{}, as many as heads", c.heads));
  c.norm_eps = keys.positive(name + ".attention.layer_norm_epsilon");
  c.activation = Activation::gelu_tanh;
  return c;
}

void write_gpt2(const GptConfig& c, GgufValues& values, const std::string& name) {
  write_sizes(c, values, name);
  values.add(name + ".attention.layer_norm_epsilon", static_cast<float>(c.norm_eps));
}

/// The flags, each with its value, that the architecture would lose; nothing if it can say all.
std::vector<std::string> lost_settings(const Architecture& architecture, GptConfig config) {
  if (config.window && *config.window >= config.context) config.window.reset();  // no token sees less for it
  const std::string name(architecture.name);
  GptConfig back;
  try {
    GgufValues values;
    architecture.write(config, values, name);
    const std::string text = gguf_header(values, {});
    const std::filesystem::path path = "keys";
    const GgufLayout layout = parse_gguf(text, path);
    back = architecture.read(GgufKeys(layout, path), name);
  } catch (const Error& error) { return {error.reason(), "", ""}; }
  back.vocab = config.vocab;
  back.lora = config.lora;  // is added to the weights
  back.tied = config.tied || !architecture.may_untie;
  if (config.has_experts(0) && back.has_experts(0)) back.ffn_width = config.hidden();
  std::vector<std::string> lost;
  for (const ConfigDifference& difference : config_differences(config, back))
    lost.push_back(fmt::format("{} {} (there: {})", difference.flag, difference.value, difference.other));
  return lost;
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {{"gpt2", true, false, read_gpt2, write_gpt2},
                                                {"llama", true, false, read_llama, write_llama},
                                                {"qwen2", true, false, read_qwen2, write_decoder},
                                                {"qwen3", true, false, read_qwen3, write_decoder},
                                                {"qwen3moe", true, false, read_qwen3moe, write_qwen3moe},
                                                {"gemma", false, true, read_gemma, write_decoder},
                                                {"gemma2", false, true, read_gemma2, write_gemma2},
                                                {"gemma3", true, true, read_gemma3, write_gemma3}};
  return all;
}

const Architecture& architecture_named(const GgufKeys& keys) {
  const std::string name = keys.text("general.architecture");
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  }
  keys.refuse("general.architecture", known);
}

const Architecture& architecture_of(const GptConfig& config) {
  const Architecture* nearest = nullptr;
  std::vector<std::string> least;
  for (const Architecture& architecture : architectures()) {
    std::vector<std::string> lost = lost_settings(architecture, config);
    if (lost.empty()) return architecture;
    if (nearest != nullptr && lost.size() >= least.size()) continue;
    nearest = &architecture;
    least = std::move(lost);
  }
  fail(ExitCode::usage, "gguf",
       "no architecture of llama.cpp that this program writes computes what this model does; the nearest is {}, which "
       "differs in {}; train with the values that are there, or do not export",
       nearest->name, fmt::join(least, ", "));
}

}  // namespace trireme::gguf
