// A pipeline schedule as data: for every rank the list of what it does, in order. schedule.h generates the lists,
// check.h checks them before training, executor.h runs them, drawing.h draws them. Each works without knowledge of the
// others.
//
// The model is cut into stages, and stage s lives on rank s % P of the pp axis, as its chunk s / P: with one chunk a
// rank, stage s on rank s. A batch is cut into micro-batches; one flows forward through the stages as an activation and
// back as a gradient. In every schedule each stage runs its backwards in the order of micro-batches, so that gradients
// are summed in the same order and all schedules give the same bits.
// Read next: parallel/pipeline/schedule.h (the generators), then parallel/pipeline/check.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pipeline {

/// A rank, stage, chunk or micro-batch as the index of a vector.
constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// What a rank does at one point of a schedule.
enum class ActionKind : std::uint8_t {
  forward,
  backward,         ///< both of the following parts at once
  backward_input,   ///< B: the gradient of the stage's input, which the stage before waits for
  backward_weight,  ///< W: the weights' gradients that B deferred (autograd/deferred.h), any time after it
  send_activation,  ///< to stage + 1
  recv_activation,  ///< from stage - 1
  send_gradient,    ///< of this stage's input, to stage - 1
  recv_gradient,    ///< of this stage's output, from stage + 1
};
inline constexpr int action_kinds = 8;
/// "forward", "backward_input", ...
std::string_view name(ActionKind kind);
/// Whether it sends or receives.
inline bool is_message(ActionKind kind) { return kind >= ActionKind::send_activation; }
/// True if it makes the gradient that goes to the stage before.
inline bool is_gradient(ActionKind kind) { return kind == ActionKind::backward || kind == ActionKind::backward_input; }

/// One step of a rank.
struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  ///< the stage that acts, also for a message
  int microbatch = 0;
  bool operator==(const Action&) const = default;
};
std::string to_string(const Action& action);  ///< "send_activation of micro-batch 3 on stage 1"
/// The action at the other end of a message.
Action counterpart(const Action& message);

/// What every rank does, in order.
struct Schedule {
  std::string name;  ///< as --pipeline spells it
  int stages = 1;    ///< of the model: ranks x chunks
  int microbatches = 1;
  bool backward = true;                    ///< false: forward only, for evaluation
  std::vector<std::vector<Action>> ranks;  ///< one list per rank of the pp axis

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int rank_of(int stage) const { return stage % rank_count(); }  ///< the rank that has this stage
  int chunks() const { return stages / rank_count(); }           ///< stages per rank
};

}  // namespace trireme::pipeline
