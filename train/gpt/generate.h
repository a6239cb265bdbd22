// Generates text with a model on any mesh, one token at a time, for one prompt or for several at once.
// Read next: train/gpt/sampling.h, train/gpt/next_logits.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/language_model.h"
#include "train/gpt/generate_options.h"
#include "train/gpt/sampling.h"

namespace trireme {

class NextLogits;  // train/gpt/next_logits.h

/// A text to generate: what it begins with, and the seed of its choices.
struct TextRequest {
  std::vector<std::int32_t> prompt;  ///< not empty
  std::uint64_t seed = 1337;
};

/// A token of a generated text.
struct GeneratedToken {
  std::int32_t id = 0;
  /// Its log-probability by the model: of softmax(logits), before penalties and temperature.
  float logprob = 0;
  std::vector<TokenLogprob> likeliest = {};  ///< GenerateOptions::top_logprobs of them
};

/// Why a text ended: `length` tokens were made, a token or the caller ended it, or a rank was told to leave.
enum class TextEnd : std::uint8_t { length, stop, leave };

/// A generated text, without its prompt and the token that ended it.
struct GeneratedText {
  std::vector<GeneratedToken> tokens;
  TextEnd end = TextEnd::length;
};

/// Called with the number of a text and each new token of it. Returns false if the text is to end with this token. It
/// must return the same on all ranks.
using EachToken = std::function<bool(std::size_t text, const GeneratedToken& token)>;

/// Generates all texts at once; GenerateOptions::seed is not used. Each has the tokens that it would have alone: logits
/// are the same up to rounding, and the random numbers of a text depend on its seed only. Equal prompts are computed
/// once. Collective over the mesh, with the same requests on all ranks; all dp ranks compute the same.
///
///   generate_texts(model, {{.prompt = a, .seed = 1}, {.prompt = a, .seed = 2}, {.prompt = b}}, {.length = 20})
std::vector<GeneratedText> generate_texts(LanguageModel& model, const std::vector<TextRequest>& requests,
                                          const GenerateOptions& options, const EachToken& each = nullptr);
/// The same with keys and values that `next` has from an earlier call, as far as the texts begin alike: for a
/// conversation. GenerateOptions::cache and past_context are those of `next`.
std::vector<GeneratedText> generate_texts(LanguageModel& model, NextLogits& next,
                                          const std::vector<TextRequest>& requests, const GenerateOptions& options,
                                          const EachToken& each = nullptr);

/// Returns the tokens after `prompt`, without those that end it. `prompt` must not be empty. The random number for
/// token n depends only on (seed, n). `each` is called with every new token. Collective over the mesh; all dp ranks
/// compute the same.
std::vector<std::int32_t> generate(LanguageModel& model, std::span<const std::int32_t> prompt,
                                   const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& each = nullptr);

}  // namespace trireme
