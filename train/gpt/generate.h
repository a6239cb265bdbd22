// Generates text with a model on any mesh, one token at a time. Read next: train/gpt/next_logits.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "models/language_model.h"

namespace trireme {

struct GenerateOptions {
  std::int64_t length = 200;  ///< tokens to generate
  double temperature = 1.0;   ///< divisor of the logits; 0: always the likeliest token
  std::int64_t top_k = 0;     ///< sample only from the k likeliest tokens; 0: from all
  double top_p =
      1.0;  ///< sample from the smallest set of likeliest tokens with this total probability (Holtzman et al. 2020)
  std::uint64_t seed = 1337;
  /// Only ids below this are generated; 0: all. A model's vocabulary may be larger than its tokenizer's (--vocab).
  std::int64_t vocab_size = 0;
  /// Generation ends before this token; none: only at `length`.
  std::optional<std::int32_t> stop = std::nullopt;
  /// Keep keys and values of earlier tokens while their positions stay the same (train/gpt/next_logits.h). If false,
  /// the whole text is computed for each token; the result is the same up to rounding.
  bool cache = true;
};

/// Samples a token from logits over the vocabulary. `random` is uniform in [0, 1).
std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& options, double random);

/// Returns the tokens after `prompt`, without GenerateOptions::stop. `prompt` must not be empty; the model sees at most
/// the last `context` tokens. The random number for token n depends only on (seed, n). `each` is called with every new
/// token. Collective over the mesh; all dp ranks compute the same.
std::vector<std::int32_t> generate(LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& each = nullptr);

}  // namespace trireme
