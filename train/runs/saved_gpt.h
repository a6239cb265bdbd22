// A saved GPT without its run: for generation. Read next: train/runs/run_texts.h, models/gpt_text.h.
#pragma once

#include <memory>

#include "data/tokenizer.h"
#include "models/gpt_config.h"
#include "train/runs/run_texts.h"

namespace trireme {

struct SavedGpt {
  GptConfig config;  ///< without dropout
  DType dtype = DType::f32;
  std::shared_ptr<const Tokenizer> tokenizer;
  Progress progress;
};

/// Throws ExitCode::usage when the checkpoint's model is not a GPT, and ExitCode::data when an entry is malformed, or
/// describes a model that what is stored cannot be.
SavedGpt read_saved_gpt(const checkpoint::Checkpoint& saved);

}  // namespace trireme
