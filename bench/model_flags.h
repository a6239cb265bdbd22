// What benchmarks with the flags of train_gpt share. Read next: train/flags.h, train/options.h.
#pragma once

#include <cstdio>

#include "train/options.h"

namespace trireme::bench {

/// True if the user asked for --help or --print-config; prints it, and the program should end.
inline bool answered(const Flags& flags, Flags::Asked asked) {
  if (asked == Flags::Asked::run) return false;
  std::fputs((asked == Flags::Asked::help ? flags.help_text() : flags.config_text()).c_str(), stdout);
  return true;
}

/// The model's configuration. --vocab must give a size here, because tokens are random numbers.
inline GptConfig model_on_random_tokens(const ModelOptions& o) {
  if (!o.vocab)
    fail(ExitCode::usage, "vocab",
         "--vocab auto is the tokenizer's number of tokens, and there is no tokenizer here; expected a number; give "
         "--vocab N, or drop --vocab");
  return o.with_vocab(*o.vocab);
}

}  // namespace trireme::bench
