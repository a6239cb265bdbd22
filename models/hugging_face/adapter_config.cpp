#include "models/hugging_face/adapter_config.h"

#include <cmath>

#include "models/hugging_face/fields.h"

namespace trireme::hugging_face {

namespace {

constexpr std::int64_t most_rank = 1 << 20;

/// Other kinds of adapters that PEFT stores under the same type, and parts of a model that it trains besides.
void refuse_other_kinds(Fields& f) {
  const nlohmann::json none = nlohmann::json::object(), nothing = nlohmann::json::array();
  f.require("bias", "none");
  f.require("rank_pattern", none);
  f.require("alpha_pattern", none);
  f.require("modules_to_save", nothing);
  f.require("target_parameters", nothing);
  f.require("trainable_token_indices", nothing);
  f.require("layer_replication", nothing);
  f.require("loftq_config", none);
  for (const char* key : {"use_dora", "use_qalora", "lora_bias"}) f.require(key, false);
}

/// How adapters begin. Some ways of PEFT also change the weights beside them, which are not in this folder.
void check_beginning(Fields& f) {
  const auto& given = f.value("init_lora_weights");
  if (given.is_null() || given.is_boolean() || given == "gaussian" || given == "orthogonal") return;
  f.refuse("init_lora_weights", "true, false, gaussian or orthogonal; others change the model's weights, too");
}

}  // namespace

nn::LoraOptions parse_adapter_config(std::string_view text, const std::filesystem::path& path) {
  const nlohmann::json object = parse_json(text, path);
  Fields f(object, path);
  if (f.text("peft_type") != "LORA") f.refuse("peft_type", "LORA");
  nn::LoraOptions lora;
  lora.rank = f.count("r", most_rank);
  lora.alpha = f.positive("lora_alpha");
  if (f.flag("use_rslora", false)) lora.alpha *= std::sqrt(static_cast<double>(lora.rank));
  if (!std::isfinite(lora.alpha)) f.refuse("lora_alpha", "a number whose product with sqrt(r) is finite");
  lora.dropout = f.number("lora_dropout", 0);
  if (!(lora.dropout >= 0 && lora.dropout < 1)) f.refuse("lora_dropout", "at least 0 and less than 1");
  lora.targets.clear();
  refuse_other_kinds(f);
  check_beginning(f);
  // Which layers have adapters is known from the tensors. The others do not change what adapters compute.
  f.ignore({"target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out", "task_type",
            "inference_mode", "base_model_name_or_path", "revision", "auto_mapping", "peft_version", "runtime_config",
            "ensure_weight_tying", "megatron_core", "qalora_group_size"});
  f.refuse_others();
  return lora;
}

std::string adapter_config_text(const nn::LoraOptions& lora, const std::vector<std::string>& targets, bool transposed,
                                const std::string& base) {
  return nlohmann::json({{"peft_type", "LORA"},
                         {"task_type", "CAUSAL_LM"},
                         {"base_model_name_or_path", base.empty() ? nlohmann::json() : nlohmann::json(base)},
                         {"r", lora.rank},
                         {"lora_alpha", lora.alpha},
                         {"lora_dropout", lora.dropout},
                         {"bias", "none"},
                         {"fan_in_fan_out", transposed},
                         {"inference_mode", true},
                         {"target_modules", targets}})
             .dump(2) +
         "\n";
}

}  // namespace trireme::hugging_face
