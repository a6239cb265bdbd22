// Which combinations of options are impossible: refused before anything is read or started, with what was asked, what
// is possible and the flag to change. What one flag may be by itself stands with its declaration in
// train/options/options.cpp.
// Read next: train/validate/validate.cpp; train/gpt/validate_gpt.h for those of a GPT.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/options/options.h"

namespace trireme {

/// Throws ExitCode::usage; `options` has been through resolve(). `blocks`: of the model, over all stages. `experts`:
/// whether it has any, which ep > 1 needs.
void validate_training(const TrainOptions& options, std::int64_t blocks, bool experts = false);

/// For a model that needs whole sequences on a rank, and says `why`: refuses cp > 1 and --sequence-parallel on.
void require_whole_sequences(const MeshOptions& options, const std::string& why);

/// --device by itself: for programs that take no other of these options.
void validate_device(const std::string& device);

// For messages of the same form elsewhere.

/// "1, 2 or 4": the divisors of n.
std::string divisors(std::int64_t n);
/// Refuses a flag that was changed although the chosen `--chooser choice` has no use for it.
void refuse_unused(bool changed, const char* flag, const char* chooser, std::string_view choice, const char* users);

}  // namespace trireme
