// How well a model predicts texts: the loss of a long text, and the log-probabilities of continuations, on any mesh.
// Read next: train/gpt/multiple_choice.h, data/eval_windows.h.
#pragma once

#include <cstdint>
#include <vector>

#include "data/source.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include "models/gpt.h"

namespace trireme {

/// The loss of a text.
struct TextScore {
  std::int64_t tokens = 0;  ///< that were predicted: all but the first
  std::int64_t bytes = 0;   ///< of the text of these tokens, as the tokenizer decodes them
  double loss = 0;          ///< mean negative log-probability of a token, in nats

  double perplexity() const;     ///< exp(loss)
  double bits_per_byte() const;  ///< loss * tokens / (ln 2 * bytes): does not depend on the tokenizer
};

/// How long a row has to be for `tokens` inputs: `context`, or less, but a padded_length().
std::int64_t row_length(const LanguageModel& model, std::int64_t context, std::int64_t tokens);

/// validation_loss() of rows of `length` inputs, a row_length(). `batch`: rows in a forward on one dp rank, at most.
double loss_of_rows(LanguageModel& model, const ValidationSource& rows, std::int64_t length, std::int64_t batch);

/// The same on every mesh up to rounding. `stride`: of StrideWindows. `batch`: windows in a forward on one dp
/// rank, at most. Collective over the mesh.
TextScore score_text(LanguageModel& model, std::int64_t context, const TokenRange& tokens, const Tokenizer& tokenizer,
                     std::int64_t stride, std::int64_t batch);

/// A context and its continuation.
struct Continuation {
  std::vector<std::int32_t> ids;       ///< of both
  std::int64_t first = 1;              ///< the place in ids at which the continuation begins; at least 1
  std::string where = "continuation";  ///< for messages: a file and a line
};
/// How likely a continuation is.
struct ContinuationScore {
  double logprob = 0;       ///< natural logarithm of the probability of the continuation
  std::int64_t tokens = 0;  ///< of the continuation
  bool greedy = false;      ///< whether each of its tokens is the likeliest
  std::int64_t cut = 0;     ///< tokens at the beginning of its context that were cut off
};

/// The scores of all continuations. Of those that are longer than the model's context and one token, the beginning is
/// cut off. Throws ExitCode::data, with its place, for one whose continuation alone is longer. Only ids below `vocab`
/// count as tokens. Collective over the mesh, with the same continuations on all ranks.
std::vector<ContinuationScore> score_continuations(Gpt& model, std::vector<Continuation> continuations,
                                                   std::int64_t vocab, std::int64_t batch);

/// The logits of one sequence of at most the model's context -> [T, V] f32 on the host, on each rank of the last stage;
/// undefined on others. Collective over the mesh.
Tensor sequence_logits(Gpt& model, const std::vector<std::int32_t>& ids);

}  // namespace trireme
