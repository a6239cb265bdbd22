// Draws a token from logits. The steps, in this order; z are logits:
//
//   repetition_penalty r   tokens of the prompt and the generated text: z > 0: z / r, else z r
//   frequency_penalty f    generated tokens: z - f n, where n is how often the token was generated
//   presence_penalty p     generated tokens: z - p
//   temperature T          z / T; T = 0: the token with the largest z; the steps below are skipped
//   top_k K                only the K largest
//   top_p P                of these, only the smallest set of likeliest tokens with a probability of P or more
//   min_p M                of these, only tokens with a probability of M times the largest, or more
//   softmax                and the first token at which the sum of probabilities, from the likeliest on, exceeds u
//
// Of equal logits, that with the lower id counts as larger. The steps and their order are those of the logits
// processors of transformers; frequency and presence penalty, which it does not have, are vLLM's and stand where vLLM
// has them. vLLM applies min_p before top_p: this gives another set only if both are used. u depends only on the seed
// and the number of the token in its text: random_of_token().
// Read next: train/gpt/generate.h.
#pragma once

#include <span>
#include <vector>

#include "train/gpt/generate_options.h"

namespace trireme {

/// A token and its log-probability.
struct TokenLogprob {
  std::int32_t id;
  float logprob;
};

/// Applies the penalties to `logits` [V] of the token after `prompt` and `generated`.
void penalise(std::span<float> logits, std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated,
              const GenerateOptions& options);

/// Draws a token from logits after penalise(). `random` is uniform in [0, 1). Throws ExitCode::numerical if a logit is
/// NaN or plus infinity.
std::int32_t pick_token(std::span<const float> logits, const GenerateOptions& options, double random);

/// The probabilities with which pick_token() draws tokens, temperature above 0. -> [V]
std::vector<double> token_probabilities(std::span<const float> logits, const GenerateOptions& options);

/// u of token `number` of a generated text.
double random_of_token(std::uint64_t seed, std::int64_t number);

/// The log-probability of a token: log softmax(logits)[id], in f64 inside.
double log_probability(std::span<const float> logits, std::int32_t id);
/// The `count` likeliest tokens, the likeliest first.
std::vector<TokenLogprob> likeliest_tokens(std::span<const float> logits, std::int64_t count);

}  // namespace trireme
