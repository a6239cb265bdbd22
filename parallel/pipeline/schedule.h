// A pipeline schedule as data: for every rank the list of what it does, in order. Generators make the lists, check.h
// proves them before training, executor.h runs them, timeline.h draws them; none of these knows how the others work.
//
// Stage s of the model lives on rank s of the pp axis. A batch is cut into micro-batches; one flows forward through
// the stages as an activation and back as a gradient. Micro-batches go back in the order in which they came, in every
// schedule, so that gradients are summed in one order and all schedules give the same bits.
// Read next: parallel/pipeline/check.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pipeline {

enum class ActionKind : std::uint8_t {
  forward,
  backward,
  send_activation,  ///< to stage + 1
  recv_activation,  ///< from stage - 1
  send_gradient,    ///< of this stage's input, to stage - 1
  recv_gradient,    ///< of this stage's output, from stage + 1
};
std::string_view name(ActionKind kind);
inline bool is_message(ActionKind kind) { return kind != ActionKind::forward && kind != ActionKind::backward; }

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  ///< the stage that acts, also for a message
  int microbatch = 0;
  bool operator==(const Action&) const = default;
};
std::string to_string(const Action& action);  ///< "send_activation of micro-batch 3 on stage 1"

struct Schedule {
  std::string name;  ///< as --pipeline spells it
  int stages = 1;
  int microbatches = 1;
  bool backward = true;                    ///< false: forward only, for evaluation
  std::vector<std::vector<Action>> ranks;  ///< one list per stage
};

/// All forwards, then all backwards (Huang et al. 2019, "GPipe"): every stage keeps every micro-batch's activations.
Schedule gpipe(int stages, int microbatches);

/// One forward, one backward (Narayanan et al. 2019, "PipeDream", in its flushing form, Narayanan et al. 2021,
/// section 2.2): after a warm-up of stages - 1 - s forwards, stage s alternates, and so keeps at most stages - s
/// micro-batches. The bubble is GPipe's.
Schedule one_f_one_b(int stages, int microbatches);

/// Forwards only, for a validation loss or a sample.
Schedule forward_only(int stages, int microbatches);

/// The schedule --pipeline names: gpipe or 1f1b. One stage has no pipeline: it always runs 1f1b, which is plain
/// gradient accumulation with one micro-batch alive. Throws ExitCode::usage for another name or a count under 1.
Schedule make_schedule(std::string_view name, int stages, int microbatches);

}  // namespace trireme::pipeline
