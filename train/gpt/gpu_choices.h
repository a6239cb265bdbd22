// Which kernels a model's products and attention go to on a GPU: --gemm auto and --attention auto choose call by call,
// and a reader wants to know what they chose. Shown in the table before training and by --print-config.
// Read next: cuda/choices.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/gpt/gpt_options.h"

namespace trireme {

struct GpuChoices {
  std::string products;   ///< "sm90", or "sm90, but sm80 for head.dx, head.dw"
  std::string attention;  ///< likewise, of forward and backward
};

/// For the shapes of one rank; `options` resolved, with --device cuda and a GPU that can be used. The head is left out
/// as long as nobody knows the vocabulary. Throws ExitCode::usage when an implementation asked for by name cannot take
/// a shape.
GpuChoices gpu_choices(const GptOptions& options, std::optional<std::int64_t> vocab);

/// The same as notes for Flags::config_text(); none on the CPU.
std::vector<std::pair<std::string, std::string>> gpu_choice_notes(const GptOptions& options);

}  // namespace trireme
