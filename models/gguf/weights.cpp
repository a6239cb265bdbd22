// Where the weights of an architecture of llama.cpp lie, and the scaling of Llama 3, which is a tensor there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/gguf/architectures.h"
#include "nn/rotary.h"

namespace trireme::gguf {
namespace {

/// Adds the weights of one model, block by block.
class MapBuilder {
 public:
  MapBuilder(const Architecture& architecture, const GptConfig& config) : a_(architecture), c_(config) {}

  WeightMap build() {
    add("wte.weight", "token_embd.weight", {c_.vocab, c_.width});
    if (c_.positions == PositionEncoding::learned) add("wpe.weight", "position_embd.weight", {c_.context, c_.width});
    for (std::int64_t i = 0; i < c_.layers; ++i)
      add_block(fmt::format("blocks.{}.", i), fmt::format("blk.{}.", i), c_.has_experts(i));
    add_norm("norm", "output_norm");
    if (!c_.tied) add("head.weight", "output.weight", {c_.vocab, c_.width});
    return std::move(map_);
  }

 private:
  void add(const std::string& ours, const std::string& theirs, const Shape& shape) {
    map_.push_back(same_weight(ours, theirs, shape));
  }
  void add_norm(const std::string& ours, const std::string& theirs) {
    add(ours + ".weight", theirs + ".weight", {c_.width});
    if (c_.norm == Norm::layer) add(ours + ".bias", theirs + ".bias", {c_.width});
  }
  void add_linear(const std::string& ours, const std::string& theirs, std::int64_t out, std::int64_t in, bool bias) {
    add(ours + ".weight", theirs + ".weight", {out, in});
    if (bias) add(ours + ".bias", theirs + ".bias", {out});
  }

  void add_block(const std::string& ours, const std::string& theirs, bool experts) {
    add_norm(ours + "norm1", theirs + "attn_norm");
    a_.name == "gpt2" ? add_packed(ours + "attn.", theirs) : add_separate(ours + "attn.", theirs);
    add_linear(ours + "attn.proj", theirs + "attn_output", c_.width, c_.attention_width(), c_.bias);
    if (c_.post_norms) add_norm(ours + "post_norm1", theirs + "post_attention_norm");
    add_norm(ours + "norm2", theirs + "ffn_norm");
    experts ? add_experts(ours + "mlp.", theirs) : add_mlp(ours + "mlp.", theirs);
    if (c_.post_norms) add_norm(ours + "post_norm2", theirs + "post_ffw_norm");
  }

  /// q, k and v [3, D, D], which are one tensor [3 D, D] there.
  void add_packed(const std::string& ours, const std::string& theirs) {
    const std::int64_t d = c_.width;
    WeightEntry weight{.name = ours + "qkv.weight", .shape = {3, d, d}, .parts = {}};
    WeightEntry bias{.name = ours + "qkv.bias", .shape = {3, d}, .parts = {}};
    for (std::int64_t j = 0; j < 3; ++j) {
      weight.parts.push_back({.name = theirs + "attn_qkv.weight", .shape = {3 * d, d}, .at = {j}, .first_row = j * d});
      bias.parts.push_back({.name = theirs + "attn_qkv.bias", .shape = {3 * d}, .at = {j}, .first_row = j * d});
    }
    map_.push_back(std::move(weight));
    map_.push_back(std::move(bias));
  }

  void add_separate(const std::string& ours, const std::string& theirs) {
    const std::int64_t kv_heads = c_.key_value_heads(), kv = kv_heads * c_.head_features();
    const auto add_rotated = [&](const char* part, const char* name, std::int64_t out, std::int64_t heads) {
      const std::size_t first = map_.size();
      add_linear(ours + part, theirs + name, out, c_.width, c_.qkv_bias);
      if (a_.name != "llama") return;
      for (std::size_t i = first; i < map_.size(); ++i) map_[i].parts.front().interleaved_heads = heads;
    };
    add_rotated("q", "attn_q", c_.attention_width(), c_.heads);
    add_rotated("k", "attn_k", kv, kv_heads);
    add_linear(ours + "v", theirs + "attn_v", kv, c_.width, c_.qkv_bias);
    if (!c_.qk_norm) return;
    for (const char* part : {"q_norm", "k_norm"})
      add(ours + part + ".weight", theirs + "attn_" + part + ".weight", {c_.head_features()});
  }

  void add_mlp(const std::string& ours, const std::string& theirs) {
    const std::int64_t d = c_.width, f = c_.hidden();
    if (c_.gated()) {
      map_.push_back({.name = ours + "gate_up.weight",
                      .shape = {2, f, d},
                      .parts = {{.name = theirs + "ffn_gate.weight", .shape = {f, d}, .at = {0}},
                                {.name = theirs + "ffn_up.weight", .shape = {f, d}, .at = {1}}}});
    } else {
      add_linear(ours + "up", theirs + "ffn_up", f, d, c_.bias);
    }
    add_linear(ours + "down", theirs + "ffn_down", d, f, c_.bias);
  }

  /// Experts are stacked there, too, but gate and up are two tensors.
  void add_experts(const std::string& ours, const std::string& theirs) {
    const std::int64_t d = c_.width, f = c_.expert_hidden(), experts = c_.experts.count;
    add(ours + "router.weight", theirs + "ffn_gate_inp.weight", {experts, d});
    WeightEntry up{.name = ours + "gate_up.weight", .shape = {experts, 2, f, d}, .parts = {}};
    WeightEntry down{.name = ours + "down.weight", .shape = {experts, d, f}, .parts = {}};
    const char* names[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight"};
    for (std::int64_t e = 0; e < experts; ++e) {
      for (std::int64_t part = 0; part < 2; ++part)
        up.parts.push_back({.name = theirs + names[part], .shape = {experts, f, d}, .at = {e, part}, .at_theirs = {e}});
      down.parts.push_back(
          {.name = theirs + "ffn_down_exps.weight", .shape = {experts, d, f}, .at = {e}, .at_theirs = {e}});
    }
    map_.push_back(std::move(up));
    map_.push_back(std::move(down));
  }

  const Architecture& a_;
  const GptConfig& c_;
  WeightMap map_;
};

}  // namespace

WeightMap weights(const Architecture& architecture, const GptConfig& config) {
  return MapBuilder(architecture, config).build();
}

Tensor rope_divisors(const GptConfig& config) {
  const nn::RopeScaling scaling = nn::parse_rope_scaling(config.rope_scaling);
  if (scaling.kind != nn::RopeScaling::Kind::llama3) return {};
  const std::int64_t half = config.head_features() / 2;
  const Tensor scaled = nn::rope_frequencies(config.head_features(), {.base = config.rope_base, .scaling = scaling});
  Tensor divisors = Tensor::empty({half}, DType::f32);
  for (std::int64_t i = 0; i < half; ++i) {
    const double plain = std::pow(config.rope_base, -static_cast<double>(i) / static_cast<double>(half));
    divisors.data<float>()[i] = static_cast<float>(plain / scaled.data<double>()[i]);
  }
  return divisors;
}

std::string scaling_of_divisors(const Tensor& divisors, const GptConfig& config, const std::string& path) {
  const Tensor stored = contiguous(cast(divisors, DType::f32));
  const float* values = stored.data<float>();
  const float largest = *std::max_element(values, values + stored.count());
  std::vector<std::string> candidates = {config.rope_scaling};
  for (const int original : {8192, 4096, 16384, 32768})
    candidates.push_back(fmt::format("llama3:{},{}", largest, original));
  for (const std::string& text : candidates) {
    GptConfig candidate = config;
    candidate.rope_scaling = text;
    try {
      const Tensor expected = rope_divisors(candidate);
      if (!expected.defined() || expected.count() != stored.count()) continue;
      const auto near = [](float a, float b) { return std::abs(a - b) <= 1e-4F * std::abs(b); };
      if (std::equal(values, values + stored.count(), expected.data<float>(), near)) return text;
    } catch (const Error&) {}  // a factor below 1
  }
  fail(ExitCode::data, "gguf",
       "{}: {} is not the scaling of Llama 3 for a context of 4096 to 32768 tokens with the usual 1 and 4; expected "
       "that "
       "one; other scalings are not supported",
       path, rope_divisors_name);
}

}  // namespace trireme::gguf
