// Reads the environment variables that a launcher sets, strictly: text that is not a number is an error, not 0. These
// are pure functions of the environment, so that tests can pass any environment. Read next:
// train/program/launcher.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>

namespace trireme {

/// The value of a variable; null when it is not set. The environment owns the text.
using Environment = std::function<const char*(const char* variable)>;
const char* process_environment(const char* variable);

/// The integer in the first of these variables that is set and not empty; nothing when none is. Throws ExitCode::usage,
/// naming the variable, unless it is an integer from `least` to 2^20.
std::optional<int> number_in(const Environment& environment, std::initializer_list<const char*> variables, int least);

/// How many processes a launcher started; 0 without one. Understands Open MPI, launchers that speak PMI, and srun.
int launched_ranks(const Environment& environment);
/// The number of this process among them; 0 without a launcher.
int launched_rank(const Environment& environment);
/// How many of them are on this machine, if the launcher says so.
std::optional<int> launched_local_ranks(const Environment& environment);
/// The number of this process among those on this machine, if the launcher says so.
std::optional<int> launched_local_rank(const Environment& environment);

}  // namespace trireme
