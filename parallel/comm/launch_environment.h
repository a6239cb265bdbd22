// What a launcher says to a process by environment variables, read strictly: a number that is none is an error, not 0.
// Pure functions of the environment, so that tests can give them any. Read next: parallel/comm/mpi_launcher.cpp.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>

namespace trireme {

/// The value of a variable; null when it is not set. What it points to is the environment's.
using Environment = std::function<const char*(const char* variable)>;
const char* process_environment(const char* variable);

/// The whole number that the first of these variables that is set, and not to nothing, holds; nothing when none is.
/// Throws ExitCode::usage, naming the variable, for what is no number, below `least` or above 2^20.
std::optional<int> number_in(const Environment& environment, std::initializer_list<const char*> variables, int least);

/// How many processes a launcher started; 0 without one. Understands Open MPI, launchers that speak PMI, and srun.
int launched_ranks(const Environment& environment);
/// The number of this process among them; 0 without a launcher.
int launched_rank(const Environment& environment);
/// How many of them are on this machine, when the launcher says so.
std::optional<int> launched_local_ranks(const Environment& environment);
/// The number of this process among those, when the launcher says so.
std::optional<int> launched_local_rank(const Environment& environment);

}  // namespace trireme
