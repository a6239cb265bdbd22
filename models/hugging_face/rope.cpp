#include "models/hugging_face/rope.h"

#include <fmt/format.h>

#include "models/config_difference.h"
#include "models/hugging_face/architectures.h"
#include "nn/rope_scaling.h"

namespace trireme::hugging_face {
namespace {

using Kind = nn::RopeScaling::Kind;

/// The scaling in an object `rope_scaling` or `rope_parameters`.
std::string read_scaling(Fields& f, std::int64_t context) {
  const std::string kind = f.text("rope_type", f.text("type", "default"));
  if (kind == "default") return "none";
  if (kind != "linear" && kind != "llama3" && kind != "yarn")
    f.refuse(f.has("rope_type") ? "rope_type" : "type", "default, linear, llama3 or yarn");
  const double factor = f.number("factor");
  if (factor < 1) f.refuse("factor", "a number of at least 1");
  if (kind == "linear") return fmt::format("linear:{}", factor);
  const std::int64_t original = f.count("original_max_position_embeddings", most_size, context);
  const bool yarn = kind == "yarn";
  const char *low_key = yarn ? "beta_slow" : "low_freq_factor", *high_key = yarn ? "beta_fast" : "high_freq_factor";
  const double low = yarn ? f.positive(low_key, 1) : f.positive(low_key);
  const double high = yarn ? f.positive(high_key, 32) : f.positive(high_key);
  if (!(low < high)) f.refuse(high_key, fmt::format("a number above {}, which is {}", low_key, low));
  if (yarn) f.require("truncate", true);
  return shortest_rope_scaling(fmt::format("{}:{},{},{},{}", kind, factor, original, low, high));
}

}  // namespace

namespace {

/// An object with the base, the scaling, or both.
void read_object(Fields& f, double& base, std::string& scaling, std::int64_t context) {
  base = f.number("rope_theta", base);
  scaling = read_scaling(f, context);
  f.require("partial_rotary_factor", 1.0);
  f.ignore({"type"});  // an older name of rope_type
  f.refuse_others();
}

/// rope_parameters of a model with two kinds of layers: an object for each.
void read_of_kinds(Fields& f, GptConfig& c, double& window_base) {
  if (const nlohmann::json* object = f.object("full_attention")) {
    Fields full(*object, f.path(), "rope_parameters.full_attention.");
    read_object(full, c.rope_base, c.rope_scaling, c.context);
  }
  if (const nlohmann::json* object = f.object("sliding_attention")) {
    Fields sliding(*object, f.path(), "rope_parameters.sliding_attention.");
    std::string scaling;
    read_object(sliding, window_base, scaling, c.context);
    if (scaling != "none") sliding.refuse("rope_type", "default, as layers with a window are not scaled");
  }
  f.refuse_others();
}

}  // namespace

void read_rope(Fields& fields, GptConfig& config, double* window_base) {
  config.rope_base = fields.number("rope_theta", config.rope_base);
  if (window_base != nullptr) *window_base = fields.number("rope_local_base_freq", *window_base);
  fields.require("partial_rotary_factor", 1.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {  // the second one counts, as in transformers
    const nlohmann::json* object = fields.object(key);
    if (object == nullptr) continue;
    Fields f(*object, fields.path(), fmt::format("{}.", key));
    if (window_base != nullptr && (object->contains("full_attention") || object->contains("sliding_attention")))
      read_of_kinds(f, config, *window_base);
    else
      read_object(f, config.rope_base, config.rope_scaling, config.context);
  }
  if (!(config.rope_base > 1)) fields.refuse("rope_theta", "a number above 1");
  if (window_base != nullptr && !(*window_base > 1)) fields.refuse("rope_local_base_freq", "a number above 1");
}

void write_rope(const GptConfig& config, nlohmann::json& json) {
  json["rope_theta"] = config.rope_base;
  json["rope_scaling"] = nullptr;
  const nn::RopeScaling s = nn::parse_rope_scaling(config.rope_scaling);
  if (s.kind == Kind::none) return;
  nlohmann::json& scaling = json["rope_scaling"];
  scaling = {{"factor", s.factor}};
  scaling["rope_type"] = s.kind == Kind::linear ? "linear" : s.kind == Kind::llama3 ? "llama3" : "yarn";
  if (s.kind == Kind::linear) return;
  scaling["original_max_position_embeddings"] = static_cast<std::int64_t>(s.original);
  scaling[s.kind == Kind::yarn ? "beta_slow" : "low_freq_factor"] = s.low;
  scaling[s.kind == Kind::yarn ? "beta_fast" : "high_freq_factor"] = s.high;
}

}  // namespace trireme::hugging_face
