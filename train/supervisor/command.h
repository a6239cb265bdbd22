// The command that a supervisor starts: what it says about the run, and how it is changed for a restart.
//
//   mpirun -n 8 build/bin/train_gpt --mesh dp=auto,tp=2 --global-batch 64 --out run1
//
// Words are looked at, not understood: a flag is `--name VALUE` or `--name=VALUE` wherever it stands, the last one
// counts, and what is not said there may stand in the file of --config.
// Read next: train/supervisor/supervisor.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::supervisor {

using Words = std::vector<std::string>;

/// The value of a flag of train_gpt on the command line, or in its --config. Throws ExitCode::usage for a flag without
/// a value and a configuration that cannot be read.
std::optional<std::string> setting(const Words& command, const std::string& name);
/// The command with --`name` set to `value`.
Words with_flag(Words command, const std::string& name, const std::string& value);

/// Whether a launcher (mpirun, mpiexec, srun, ...) starts the ranks.
bool has_launcher(const Words& command);
/// How many ranks the launcher is told to start (-n, -np, --ntasks); nothing when it is not told.
std::optional<int> launcher_ranks(const Words& command);
Words with_launcher_ranks(Words command, int ranks);
/// Open MPI passes its own environment on to ranks on other machines only when told to, for each variable.
Words with_exported(Words command, const std::string& variable);

/// What a command must be to be started again with fewer ranks.
struct Elastic {
  int ranks = 0;        ///< as the command has it
  int model_ranks = 0;  ///< of one copy of the model: tp x pp x cp
};
/// Throws ExitCode::usage, saying what is missing: a launcher with -n, --mesh dp=auto, and a --global-batch, without
/// which fewer ranks would train with other batches.
Elastic require_elastic(const Words& command);

/// The command as it is started: --resume auto is added where it lacks one; then `added` is set.
Words first_command(const Words& command, bool& added);
/// The checkpoint that the command names with --resume PATH; empty for auto, for none and without the flag.
std::string resumed_path(const Words& command);
/// The command as it is started again. `saved`: there is a checkpoint in --out. A run from another run's checkpoint
/// that has none of its own yet begins from there again.
Words next_command(const Words& command, bool saved);

/// As a line for a shell, for people to read.
std::string to_string(const Words& command);

}  // namespace trireme::supervisor
