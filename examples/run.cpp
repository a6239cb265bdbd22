// Keeps a training run going: starts it, and restarts it from its newest checkpoint if a process was killed, a rank was
// lost, or the launcher failed:
//
//   build/bin/run -- mpirun -n 8 build/bin/train_gpt --data text --mesh dp=auto --checkpoint-every 100 --out run1
//   build/bin/run --restarts 5 -- build/bin/train_gpt --data text --mesh dp=2 --checkpoint-every 100 --out run1
//
// Incidents are recorded in OUT/incidents.jsonl, and listed in a table at the end. On SIGTERM, SIGINT or SIGUSR2, the
// job saves and leaves; exit code 75. Read next: ops/supervisor/supervisor.h; docs/operations.md.
#include <algorithm>

#include "ops/supervisor/supervisor.h"
#include "train/options/flags.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

void declare(Flags& flags, supervisor::Options& o) {
  const Range seconds{.low = 0, .high = 1e6};  // eleven days: more would not fit into the system's clocks
  flags.group("restarts");
  flags.add("restarts", "N", o.limits.restarts, "most restarts in a row without a newer checkpoint in between",
            Range::at_least(0));
  flags.add("pause", "SECONDS", o.limits.pause,
            "pause before the second restart in a row; the first is immediate, each further pause is twice as long",
            seconds);
  flags.add("longest-pause", "SECONDS", o.limits.longest_pause, "upper limit of the pause", seconds);
  flags.add("grace", "SECONDS", o.grace,
            "time for the other processes of a job to end after its command; then they are killed", seconds);
  flags.group("fewer ranks");
  flags.add("min-ranks", "M", o.least_ranks, "all", "continue with fewer ranks, but at least M, if not all can start",
            Range::at_least(1));
  flags.add("world-command", "COMMAND", o.world_command,
            "shell command that prints how many ranks can be started; without it the launcher is tried");
}

int supervise(const std::vector<std::string>& words) {
  supervisor::Options options;
  Flags flags("run", "Starts a command of train_gpt, and restarts it if it fails: run [FLAGS] -- COMMAND");
  flags.example("run -- train_gpt --data text.txt --checkpoint-every 100 --out run1");
  declare(flags, options);
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (!flags.parse_or_print(std::vector(words.begin(), dashes))) return 0;
  if (words.end() - dashes < 2)
    fail(ExitCode::usage, "run", "no command; expected run [FLAGS] -- COMMAND, with -- before the command; see --help");
  return supervisor::Supervisor(options, {dashes + 1, words.end()}).run();
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] { return supervise({argv + 1, argv + argc}); });
}
