// The architectures of Hugging Face that a GptConfig can be: how each one's config.json says what a GptConfig says, and
// under which names it stores its weights. One row per architecture; its functions are in gpt2.cpp, llama.cpp,
// experts.cpp and gemma.cpp.
// Includes nlohmann/json.hpp, which is slow to compile: include this from .cpp files only.
// Read next: models/hugging_face/llama.cpp, models/hugging_face/config.h, models/weight_map.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/gpt_config.h"
#include "models/hugging_face/fields.h"
#include "models/weight_map.h"

namespace trireme::hugging_face {

/// One architecture. Its functions are the only place that knows its fields and names.
struct Architecture {
  std::string_view model_type;  ///< as in config.json
  std::string_view class_name;  ///< of `transformers`: the entry `architectures`
  std::string_view base;        ///< before the names of all tensors but the head's: "model."

  /// Reads the fields that change what the model computes. Throws ExitCode::data, naming the field, for what a
  /// GptConfig cannot say.
  GptConfig (*read)(Fields& fields);
  /// Sets the fields that read() reads. What the architecture cannot say is lost: config_text() compares.
  void (*write)(const GptConfig& config, nlohmann::json& json);
  /// `base`: before the names, as stored: some files are without it.
  WeightMap (*weights)(const GptConfig& config, const std::string& base);
  /// Whether a tensor that weights() does not name may be in a folder: a buffer that older programs have stored.
  bool (*ignored)(const GptConfig& config, std::string_view name);
};

/// All of them. The first one that can say what a GptConfig says is the one that is written.
const std::vector<Architecture>& architectures();

/// The weights of a model under the names of its architecture. Throws ExitCode::usage if no architecture can say what
/// the configuration does.
WeightMap weights_of(const GptConfig& config);

// Rows of architectures(), by the file that has their functions.
Architecture gpt2();
Architecture llama();
Architecture mistral();
Architecture qwen2();
Architecture qwen3();
Architecture mixtral();
Architecture qwen3_moe();
Architecture gemma();
Architecture gemma2();
Architecture gemma3_text();

inline constexpr std::int64_t most_size = (std::int64_t{1} << 31) - 1;  ///< of a width, a vocabulary, a context
inline constexpr std::int64_t most_layers = 1 << 12, most_experts = 1 << 12;

}  // namespace trireme::hugging_face
