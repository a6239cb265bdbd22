// Generating text from a model on any mesh, one token at a time. Read next: train/gpt/next_logits.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/language_model.h"

namespace trireme {

struct GenerateOptions {
  std::int64_t length = 200;  ///< tokens to generate
  double temperature = 1.0;   ///< logits are divided by it; 0: always the likeliest token
  std::int64_t top_k = 0;     ///< only the k likeliest; 0: all
  double top_p =
      1.0;  ///< only the smallest set of likeliest tokens that holds this much probability (Holtzman et al. 2020)
  std::uint64_t seed = 1337;
  /// Only the first so many ids: a model's vocabulary may be larger than its tokenizer's (--vocab). 0: all.
  std::int64_t tokens = 0;
  /// Keys and values of earlier tokens are kept while they stay where they are (train/gpt/next_logits.h); false: all of
  /// the text is computed for each token, in the same result up to rounding.
  bool cache = true;
};

/// Picks a token from logits over the vocabulary. `random` is uniform in [0, 1).
std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& options, double random);

/// The tokens that follow `prompt` (not empty; only its last `context` tokens are seen). Token n depends on (seed, n),
/// not on other uses of random numbers. `each` is called with every new token. Collective over tp and pp; all dp ranks
/// compute the same.
std::vector<std::int32_t> generate(LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& each = nullptr);

}  // namespace trireme
