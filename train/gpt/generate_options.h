// The choices that a text is generated with. Read next: train/gpt/sampling.h, which applies them to logits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme {

/// What a model sees of a text that is longer than its context of C tokens. A text that fits is seen as a whole.
enum class PastContext : std::uint8_t {
  /// Keys and values of earlier tokens stay as they are, so a token costs no more than within the context.
  /// Rotary positions: they go on counting, and each token sees the last C tokens, itself among them, as with a window
  /// of attention of C. The result is that of the whole text with such a window. In the second and later blocks, what a
  /// token sees was computed from still earlier tokens, so the numbers differ from those of `recompute`.
  /// Learned positions exist for C tokens only: when the context is full, the older half is dropped, and the newer half
  /// is computed again from position 0 on. The model sees between C/2 and C tokens.
  slide,
  /// The last C tokens, as a text of their own: all positions change with every token, so all C are computed again.
  recompute,
};

/// How tokens are drawn, and where a text ends.
struct GenerateOptions {
  std::int64_t length = 200;  ///< tokens to generate
  double temperature = 1.0;   ///< divisor of the logits; 0: always the likeliest token
  std::int64_t top_k = 0;     ///< sample only from the k likeliest tokens; 0: from all
  /// Sample from the smallest set of likeliest tokens with this total probability (Holtzman et al. 2020).
  double top_p = 1.0;
  /// Sample only tokens that are at least this many times as likely as the likeliest (Nguyen et al. 2024). 0: all.
  double min_p = 0;
  /// Logits of tokens of the prompt and of the generated text: positive ones are divided by it, negative ones
  /// multiplied (Keskar et al. 2019, section 4.1). 1: none.
  double repetition_penalty = 1;
  double presence_penalty = 0;   ///< subtracted from the logits of tokens that were generated
  double frequency_penalty = 0;  ///< subtracted from them once for each time that they were generated
  std::uint64_t seed = 1337;
  /// Only ids below this are generated; 0: all. A model's vocabulary may be larger than its tokenizer's (--vocab).
  std::int64_t vocab_size = 0;
  /// Generation ends before these tokens; none: only at `length`.
  std::vector<std::int32_t> stop = {};
  /// Generation ends, on all ranks after the same token, soon after this is true on any rank
  /// (train/program/leave_agreement.h). All ranks must have it, or none.
  std::function<bool()> leave = nullptr;
  /// Keep keys and values of earlier tokens (train/gpt/next_logits.h). If false, the whole text is computed for each
  /// token; the result is the same up to rounding.
  bool cache = true;
  PastContext past_context = PastContext::slide;
  std::int64_t top_logprobs = 0;  ///< GeneratedToken::likeliest: how many

  /// Whether this token ends a text.
  bool ends_at(std::int32_t token) const { return std::find(stop.begin(), stop.end(), token) != stop.end(); }
  bool penalises() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

}  // namespace trireme
