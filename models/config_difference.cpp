#include "models/config_difference.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/gpt_text.h"
#include "nn/rope_scaling.h"

namespace trireme {
namespace {

/// What does not change logits has its default.
GptConfig of_logits(GptConfig c) {
  const nn::ExpertsOptions experts = c.experts;
  c.dropout = 0;
  c.document_separator.reset();
  c.restart_positions = false;
  c.rope_scaling = shortest_rope_scaling(c.rope_scaling);
  if (!c.window) c.window_every = 1, c.full_every.reset(), c.window_rope_base.reset();
  if (c.window_rope_base == c.rope_base && c.rope_scaling == "none") c.window_rope_base.reset();
  if (c.query_pre_attn_scalar == static_cast<double>(c.head_features())) c.query_pre_attn_scalar.reset();
  c.experts = {};
  c.experts.count = experts.count;
  if (experts.count == 0) c.expert_ffn_width.reset(), c.moe_every = 1;
  if (experts.count > 0) {
    c.experts.top_k = experts.top_k;
    c.experts.norm = experts.norm;
    c.experts.shared = experts.shared;
  }
  return c;
}

std::vector<Model::Setting> settings(const GptConfig& config) {
  return gpt_settings(gpt_text(of_logits(config), DType::f32), "a configuration");
}

std::string value_in(const std::vector<Model::Setting>& values, const std::string& flag) {
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == flag; });
  return found == values.end() ? "none" : found->second;
}

}  // namespace

std::vector<ConfigDifference> config_differences(const GptConfig& config, const GptConfig& other) {
  const std::vector<Model::Setting> ours = settings(config), theirs = settings(other);
  std::vector<ConfigDifference> differences;
  for (const auto& [flag, value] : ours)
    if (const std::string there = value_in(theirs, flag); there != value) differences.push_back({flag, value, there});
  for (const auto& [flag, value] : theirs)
    if (value_in(ours, flag) == "none" && value != "none") differences.push_back({flag, "none", value});
  const auto same_flag = [](const auto& a, const auto& b) { return a.flag == b.flag; };
  differences.erase(std::unique(differences.begin(), differences.end(), same_flag), differences.end());
  return differences;
}

std::string shortest_rope_scaling(const std::string& text) {
  using Kind = nn::RopeScaling::Kind;
  const nn::RopeScaling s = nn::parse_rope_scaling(text);
  if (s.kind == Kind::none) return "none";
  if (s.kind == Kind::linear) return fmt::format("linear:{}", s.factor);
  const bool yarn = s.kind == Kind::yarn;
  const std::string begin = fmt::format("{}:{},{}", yarn ? "yarn" : "llama3", s.factor, s.original);
  return s.low == 1 && s.high == (yarn ? 32 : 4) ? begin : fmt::format("{},{},{}", begin, s.low, s.high);
}

}  // namespace trireme
