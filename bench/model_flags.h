// What benchmarks with the flags of train_gpt share. Read next: train/options/flags.h, train/gpt/gpt_options.h.
#pragma once

#include "train/gpt/gpt_options.h"

namespace trireme::bench {

/// The model's configuration. --vocab must give a size here, because tokens are random numbers.
inline GptConfig model_on_random_tokens(const ModelOptions& o) {
  if (!o.vocab)
    fail(ExitCode::usage, "vocab",
         "--vocab auto is the tokenizer's number of tokens, and there is no tokenizer here; expected a number; give "
         "--vocab N, or drop --vocab");
  return o.with_vocab(*o.vocab);
}

}  // namespace trireme::bench
