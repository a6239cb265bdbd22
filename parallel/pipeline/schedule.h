// A pipeline schedule as data: for every rank the list of what it does, in order. Generators make the lists, check.h
// proves them before training, executor.h runs them, timeline.h draws them. Each works without knowledge of the others.
//
// The model is cut into stages, and stage s lives on rank s % P of the pp axis, as its chunk s / P: with one chunk a
// rank, stage s on rank s. A batch is cut into micro-batches; one flows forward through the stages as an activation and
// back as a gradient. In every schedule each stage runs its backwards in the order of micro-batches, so that gradients
// are summed in the same order and all schedules give the same bits.
// Read next: parallel/pipeline/schedule.cpp (the generators), parallel/pipeline/schedules.h (their names), then
// parallel/pipeline/check.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pipeline {

/// A rank, stage, chunk or micro-batch as the index of a vector.
constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

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
std::string_view name(ActionKind kind);
inline bool is_message(ActionKind kind) { return kind >= ActionKind::send_activation; }
/// True if it makes the gradient that goes to the stage before.
inline bool is_gradient(ActionKind kind) { return kind == ActionKind::backward || kind == ActionKind::backward_input; }

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  ///< the stage that acts, also for a message
  int microbatch = 0;
  bool operator==(const Action&) const = default;
};
std::string to_string(const Action& action);  ///< "send_activation of micro-batch 3 on stage 1"

struct Schedule {
  std::string name;  ///< as --pipeline spells it
  int stages = 1;    ///< of the model: ranks x chunks
  int microbatches = 1;
  bool backward = true;                    ///< false: forward only, for evaluation
  std::vector<std::vector<Action>> ranks;  ///< one list per rank of the pp axis

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int rank_of(int stage) const { return stage % rank_count(); }
  int chunks() const { return stages / rank_count(); }  ///< stages per rank
};

/// All forwards, then all backwards (Huang et al. 2019, "GPipe"): every rank keeps every micro-batch's activations.
Schedule gpipe(int ranks, int microbatches);

/// One forward, one backward (Narayanan et al. 2019, "PipeDream", in its flushing form, Narayanan et al. 2021, section
/// 2.2): after a warm-up of P - 1 - r forwards, rank r alternates, and so keeps at most P - r micro-batches. The bubble
/// is GPipe's, (P - 1) / M of ideal time.
Schedule one_f_one_b(int ranks, int microbatches);

/// 1F1B with `chunks` stages on every rank (Narayanan et al. 2021, section 2.2): a micro-batch passes each rank V =
/// `chunks` times, and filling the pipeline takes 1/V of the time. The bubble is (P - 1) / (V M), for V times the
/// messages and more activations alive. A rank takes a run of P micro-batches through one chunk, then the same run
/// through the next. If P does not divide M, runs are longer, up to 2 P - 1, with the same bubble: every count works
/// without padding.
Schedule interleaved(int ranks, int microbatches, int chunks);

/// ZB-H1 (Qi et al. 2023, section 2.3): 1F1B with backward split. Rank r delays the weight part of a micro-batch by r
/// backwards; so weight parts fill the time in which a rank would wait at the end. With forward, input and weight parts
/// of equal cost the bubble is a third of 1F1B's, (P - 1) / 3 M, and no rank keeps more than P micro-batches, as 1F1B's
/// first rank does.
Schedule zero_bubble(int ranks, int microbatches);

/// Forwards only, for a validation loss or a sample.
Schedule forward_only(int ranks, int microbatches, int chunks = 1);

}  // namespace trireme::pipeline
