// What happens in a training run, as values. The training loop emits events (train/events/event_stream.h), and sinks
// show or store them: the terminal, JSON lines on standard output, metrics.jsonl, TensorBoard, Prometheus. The loop
// does not know which sinks there are. Every rank emits events, but only the first rank has sinks.
//
// A run emits them in this order:
//
//   RunPlanned    and nothing else if the run ends before its first step: --dry-run, or all steps were made before
//   RunBegan, Validated (if there is validation data), then for every step
//     StepMade
//     StepLogged    every --log-every steps, and when the step is evaluated
//     Validated     every --eval-every steps
//     Sampled       every --sample-every steps
//     Saved         when a checkpoint is complete: some steps after the one it holds
//   and RunEnded, unless the run ends with an error
//
// Said may come at any time, Activity whenever training waits for something else, and RolledBack between two steps.
// Read next: train/events/event_stream.h, train/loop/rank_run.cpp, which emits most of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "train/events/metrics.h"
#include "train/program/timer.h"

namespace trireme {

using LabelledValue = std::pair<std::string, std::string>;  ///< label, value; a value may have several lines

/// What will be trained, before anything is loaded or saved.
struct RunPlanned {
  std::vector<LabelledValue> rows{};     ///< what every user should see
  std::vector<LabelledValue> details{};  ///< shown with --verbose
};

struct RunBegan {
  std::int64_t first_step = 0;  ///< steps made before, by the run that this one resumes
  std::int64_t steps = 0;       ///< --steps: the last step's number
  std::string rate_unit{};      ///< of StepRecord::tokens_per_s: "tok/s"
  std::string out{};            ///< the run's folder; empty: nothing is kept
  std::string config{};         ///< the resolved options, as JSON
  std::string use{};            ///< Task::use_command() for `out`; may be empty
};

/// The weights were updated. It is emitted for every step, so it has only values that cost nothing.
struct StepMade {
  std::int64_t step = 0;  ///< 1 for the first
  double seconds = 0;     ///< since the last step was made, or since training began; evaluation and saving excluded
};

struct StepLogged {
  StepRecord record;       ///< without val_loss
  bool evaluated = false;  ///< a Validated of the same step follows, unless a signal ends the run before
};

struct Validated {
  std::int64_t step = 0;  ///< 0: before the first step
  double loss = 0;        ///< mean per target over the validation set; the run ends if it is not finite
  std::string meaning{};  ///< Task::explain_loss(): "perplexity 6.31"; may be empty
  double seconds = 0;     ///< how long it took
};

struct Sampled {
  std::int64_t step = 0;
  std::string text{};  ///< as the model made it, control characters included
  double seconds = 0;  ///< how long it took
};

/// What the run does while no step is made; the event that follows it ends it. Emitted often: only for people.
struct Activity {
  std::string name{};                ///< "evaluating", "sampling", "saving"
  std::int64_t done = 0, total = 0;  ///< of its parts; total 0: not known
};

struct Saved {
  std::int64_t step = 0;
  std::string path{};        ///< of the checkpoint
  std::int64_t bytes = 0;    ///< of all files
  double seconds = 0;        ///< from the start of the save to its commit; training went on meanwhile
  double stall_seconds = 0;  ///< of these, how long training stood still on the first rank
  bool best = false;         ///< its validation loss is the lowest so far
  bool asked = false;        ///< a signal asked for it, and the run goes on
  bool leaving = false;      ///< a signal ends the run with it: a Said follows that names the step
  std::string warning{};     ///< why older checkpoints could not be removed; or empty
};

/// The run goes on from an earlier step. Sinks that store steps must drop those after it.
struct RolledBack {
  std::int64_t step = 0;
};

/// A message for the user.
struct Said {
  enum class Level : std::uint8_t { info, warning };
  Level level = Level::info;
  std::string text{};  ///< one or more lines
};

/// Bytes of tensors of the first rank, the most that there were.
struct MemoryRow {
  std::string what{};  ///< a category, or "at once": all together
  std::int64_t predicted = 0, measured = 0;
};

struct RunEnded {
  std::int64_t steps = 0;           ///< made by this start of the run
  double wall_seconds = 0;          ///< of this start
  PhaseSeconds phases{};            ///< where they went; the rest is outside all phases
  bool last_step = false;           ///< --steps is reached; otherwise a signal asked the run to end
  std::vector<MemoryRow> memory{};  ///< empty: it was not predicted
};

using Event = std::variant<RunPlanned, RunBegan, StepMade, StepLogged, Validated, Sampled, Activity, Saved, RolledBack,
                           Said, RunEnded>;

}  // namespace trireme
