// What benchmarks with flags of train_gpt share. Read next: train/flags.h, train/options.h.
#pragma once

#include <cstdio>

#include "train/options.h"

namespace trireme::bench {

/// Whether the user asked for --help or --print-config, which is then printed, and nothing else is to be done.
inline bool answered(const Flags& flags, Flags::Asked asked) {
  if (asked == Flags::Asked::run) return false;
  std::fputs((asked == Flags::Asked::help ? flags.help_text() : flags.config_text()).c_str(), stdout);
  return true;
}

/// The model, of which --vocab is to say the size here: tokens are random numbers.
inline GptConfig model_on_random_tokens(const ModelOptions& o) {
  if (!o.vocab)
    fail(ExitCode::usage, "vocab",
         "--vocab auto is the tokenizer's number of tokens, and there is no tokenizer here; expected a number; give "
         "--vocab N, or drop --vocab");
  return o.with_vocab(*o.vocab);
}

}  // namespace trireme::bench
