// Refuses impossible combinations of options before anything is read or started. Errors say what was requested, what is
// possible and which flag to change. The range of a flag, and the flags without which it has no effect, are in its
// declaration in train/options/options.cpp.
// Read next: train/validate/validate.cpp; train/gpt/validate_gpt.h for those of a GPT.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "train/options/options.h"

namespace trireme {

/// Throws ExitCode::usage. `options`: after resolve(). `blocks`: of the model, over all stages. `experts`: the model
/// has experts, which ep > 1 needs.
void validate_training(const TrainOptions& options, std::int64_t blocks, bool experts = false);

/// Refuses cp > 1 and --sequence-parallel on, for a model that needs whole sequences on a rank. `why` is for the
/// message.
void require_whole_sequences(const MeshOptions& options, const std::string& why);

/// Checks --device alone, for programs that have no other of these options.
void validate_device(const std::string& device);

// For messages of the same form in other files.

/// "1, 2 or 4": the divisors of n.
std::string divisors(std::int64_t n);

/// Throws ExitCode::usage if a flag that `declare` declares differs from its default but has no effect. Declares them
/// once a thread, because the planner checks 100,000 sets of options.
template <class Options, void (*declare)(Flags&, Options&)>
void refuse_unused(const Options& options) {
  struct Declared {
    Options options;  // the flags take their defaults from it
    Flags flags{"", ""};

    Declared() { declare(flags, options); }
  };
  thread_local Declared declared;
  declared.options = options;
  declared.flags.refuse_unused();
}

}  // namespace trireme
