// The architectures of llama.cpp that a GptConfig can be: which keys of a GGUF file say what a GptConfig says, and
// under which names the weights are stored.
//
//   llama      Llama, Mistral, Mixtral      rows of q and k in pairs of neighbours; no window
//   gpt2       GPT-2                        q, k and v in one tensor
//   qwen2, qwen3, qwen3moe, gemma, gemma2, gemma3
//
// Names are "blk.7.attn_q.weight". Norms of Gemma are stored as 1 + weight. What llama.cpp decides by the architecture
// alone is not in the file, such as the scale of scores and the places of windows; a model that differs is refused.
// Read next: models/gguf/model_file.h, models/weight_map.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/gguf/keys.h"
#include "data/gguf/writer.h"
#include "models/gpt_config.h"
#include "models/weight_map.h"

namespace trireme::gguf {

/// One architecture.
struct Architecture {
  std::string_view name;  ///< general.architecture
  bool may_untie;         ///< whether the head may have weights of its own
  bool adds_one;          ///< norms are stored as 1 + weight
  /// Reads the keys; vocabulary and tied are read from the tensors. Throws ExitCode::data, naming the key.
  GptConfig (*read)(const GgufKeys& keys, const std::string& name);
  /// Adds what read() reads. What the architecture cannot say is lost: architecture_of() compares.
  void (*write)(const GptConfig& config, GgufValues& values, const std::string& name);
};

const std::vector<Architecture>& architectures();  ///< all of them
/// Throws ExitCode::data, naming the key, for another one.
const Architecture& architecture_named(const GgufKeys& keys);
/// The first architecture that computes what a GPT of this configuration does. Throws ExitCode::usage, with the flags
/// that have no counterpart in the nearest one, if there is none.
const Architecture& architecture_of(const GptConfig& config);

/// All weights but rope_frequencies().
WeightMap weights(const Architecture& architecture, const GptConfig& config);

/// The tensor that holds the scaling of Llama 3: what the frequency of each pair is divided by.
inline constexpr const char* rope_divisors_name = "rope_freqs.weight";
/// [Dh/2] f32; undefined without such a scaling.
Tensor rope_divisors(const GptConfig& config);
/// The scaling that has these divisors, as text for rope_scaling. Throws ExitCode::data, naming `path`, if there is
/// none.
std::string scaling_of_divisors(const Tensor& divisors, const GptConfig& config, const std::string& path);

}  // namespace trireme::gguf
