// Generates many texts, some at once. The copies of a model (dp) take the batches in turns, and the first rank writes
// all texts in order:
//
//   round 0    copy 0: batch 0    copy 1: batch 1
//   round 1    copy 0: batch 2    copy 1: batch 3
//
// A batch has the same texts on every mesh, since what else is in a batch may change the last bits of a logit. So the
// output of dp=N is, bit by bit, that of one copy. Read next: train/gpt/generation_output.h, train/gpt/inference.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "train/gpt/generation_output.h"
#include "train/gpt/inference.h"

namespace trireme {

/// What generate_batches() has made.
struct BatchCounts {
  std::int64_t tokens = 0;  ///< on the first rank: of all texts
  std::int64_t whole = 0;   ///< on the first rank: texts that came to their end
  std::int64_t cut = 0;     ///< on the first rank: texts that a signal ended
  bool told = false;        ///< on all ranks: a signal has cut a text, or kept a batch from beginning
};

/// Generates all texts, `batch` at once, of which each copy of the model makes its own: `model` is that of `copy`.
/// `output(begin, end)` makes the output of these texts; only that of the first rank may write. After
/// GenerateOptions::leave no batch begins. Collective over `world`, with the same requests on all ranks.
BatchCounts generate_batches(ProcessGroup& world, const ModelCopy& copy, LanguageModel& model,
                             const std::vector<TextRequest>& requests, std::int64_t batch,
                             const GenerateOptions& options,
                             const std::function<GenerationOutput(std::size_t begin, std::size_t end)>& output);

}  // namespace trireme
