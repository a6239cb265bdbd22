// The command that a supervisor starts: what it says about the run, and how it is changed for a restart.
//
//   mpirun -n 8 build/bin/train_gpt --mesh dp=auto,tp=2 --global-batch 64 --out run1
//
// The command is searched for flags, not parsed. A flag is `--name VALUE` or `--name=VALUE` at any place; the last one
// counts. A flag that is not on the command line may be in the file of --config.
// Read next: ops/supervisor/supervisor.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::supervisor {

using Command = std::vector<std::string>;  ///< the program and its arguments

/// The value of a train_gpt flag on the command line, or in its --config file. Throws ExitCode::usage for a flag
/// without a value and for a --config that is not a file with a JSON object.
std::optional<std::string> setting(const Command& command, const std::string& name);
/// The command with --`name` set to `value`.
Command with_flag(Command command, const std::string& name, const std::string& value);

/// True if a launcher (mpirun, mpiexec, srun, ...) starts the ranks.
bool has_launcher(const Command& command);
/// The number of ranks that the launcher is asked to start (-n, -np, --np, --ntasks); nothing if the command does not
/// say.
std::optional<int> launcher_ranks(const Command& command);
Command with_launcher_ranks(Command command, int ranks);
/// Adds -x `variable`: Open MPI exports an environment variable to ranks on other machines only if it is asked to.
Command with_exported(Command command, const std::string& variable);

/// The numbers of a command that can be restarted with fewer ranks.
struct Elastic {
  int ranks = 0;        ///< as in the command
  int model_ranks = 0;  ///< ranks of one model replica: tp x pp x cp
};
/// Throws ExitCode::usage, and names what is missing: a launcher with -n, --mesh dp=auto, or --global-batch. Without
/// --global-batch, fewer ranks would train with smaller batches.
Elastic require_elastic(const Command& command);

/// The command for the first start. If it has no --resume, --resume auto is appended and `added` is set.
Command first_command(const Command& command, bool& added);
/// The PATH of --resume PATH; empty for auto, for none, and without the flag.
std::string resumed_path(const Command& command);
/// The command for a restart. `saved`: --out holds a checkpoint of this run. Without one, a run that began from another
/// run's checkpoint begins there again.
Command next_command(const Command& command, bool saved);

/// The command as a shell line, for people to read.
std::string to_string(const Command& command);

}  // namespace trireme::supervisor
