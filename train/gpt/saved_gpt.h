// A saved GPT without its run, for generation. Read next: train/runs/run_texts.h, models/gpt_text.h.
#pragma once

#include <memory>

#include "data/tokenizer.h"
#include "models/gpt_config.h"
#include "train/gpt/usage_texts.h"
#include "train/runs/run_texts.h"

namespace trireme {

/// A GPT of a checkpoint.
struct SavedGpt {
  GptConfig config;  ///< without dropout
  DType dtype = DType::f32;
  std::shared_ptr<const Tokenizer> tokenizer;
  Progress progress;
  UsageTexts usage;
};

/// Throws ExitCode::usage if the checkpoint's model is not a GPT, and ExitCode::data if an entry is malformed or
/// describes a model that does not match the stored tensors.
SavedGpt read_saved_gpt(const checkpoint::Checkpoint& saved);

}  // namespace trireme
