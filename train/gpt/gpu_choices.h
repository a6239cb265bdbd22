// Finds out which kernels a model's matrix products and attention use on a GPU. --gemm auto and --attention auto choose
// call by call; the table before training and --print-config show the choices.
// Read next: cuda/choices.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/gpt/gpt_options.h"

namespace trireme {

/// Which implementations compute products and attention.
struct GpuChoices {
  std::string products;   ///< "sm90", or "sm90, but sm80 for head.dx, head.dw"
  std::string attention;  ///< the same for attention's forward and backward
};

/// For the shapes of one rank. `options`: after resolve(), with --device cuda and a usable GPU. Without `vocab`, the
/// head is omitted. Throws ExitCode::usage if an implementation chosen by name does not support a shape.
GpuChoices gpu_choices(const GptOptions& options, std::optional<std::int64_t> vocab);

/// The same as notes for Flags::config_text(); empty on the CPU.
std::vector<std::pair<std::string, std::string>> gpu_choice_notes(const GptOptions& options);

}  // namespace trireme
