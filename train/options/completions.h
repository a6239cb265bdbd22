// Completion of flags and their values in a shell, made from the declarations of the flags:
//
//   source <(build/bin/train_gpt --completions bash)
//
// Read next: train/options/flags.h.
#pragma once

#include <string>
#include <vector>

#include "train/options/flags.h"

namespace trireme {

/// A script for `shell`, bash or zsh, that completes the command `program`.
std::string completions(const std::string& shell, const std::string& program,
                        const std::vector<Flags::Declared>& flags);

}  // namespace trireme
