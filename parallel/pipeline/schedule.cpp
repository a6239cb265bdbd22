#include "parallel/pipeline/schedule.h"

#include <algorithm>

#include "core/error.h"

namespace trireme::pipeline {

std::string_view name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::send_activation:
      return "send_activation";
    case ActionKind::recv_activation:
      return "recv_activation";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::recv_gradient:
      return "recv_gradient";
  }
  fail(ExitCode::internal, "pipeline", "unknown action kind {}", static_cast<int>(kind));
}

std::string to_string(const Action& action) {
  return fmt::format("{} of micro-batch {} on stage {}", name(action.kind), action.microbatch, action.stage);
}

namespace {

Schedule make_empty(const char* name, int stages, int microbatches) {
  if (stages < 1 || microbatches < 1) {
    fail(ExitCode::usage, "pipeline",
         "{} needs at least 1 stage and 1 micro-batch, got {} and {}; change --mesh pp or --micro-batch", name, stages,
         microbatches);
  }
  Schedule schedule;
  schedule.name = name;
  schedule.stages = stages;
  schedule.microbatches = microbatches;
  schedule.ranks.resize(static_cast<std::size_t>(stages));
  return schedule;
}

/// Appends a forward or backward with its messages: what it needs is received right before, what it makes sent right
/// after. Between two computations a rank therefore has one run of messages, a send and a receive, which may be
/// posted together.
class RankBuilder {
 public:
  RankBuilder(Schedule& schedule, int stage)
      : list_(schedule.ranks[static_cast<std::size_t>(stage)]), stage_(stage), last_stage_(schedule.stages - 1) {}

  void forward(int microbatch) {
    if (stage_ > 0) add(ActionKind::recv_activation, microbatch);
    add(ActionKind::forward, microbatch);
    if (stage_ < last_stage_) add(ActionKind::send_activation, microbatch);
  }
  void backward(int microbatch) {
    if (stage_ < last_stage_) add(ActionKind::recv_gradient, microbatch);
    add(ActionKind::backward, microbatch);
    if (stage_ > 0) add(ActionKind::send_gradient, microbatch);
  }

 private:
  void add(ActionKind kind, int microbatch) { list_.push_back({kind, stage_, microbatch}); }

  std::vector<Action>& list_;
  int stage_, last_stage_;
};

}  // namespace

Schedule gpipe(int stages, int microbatches) {
  Schedule schedule = make_empty("gpipe", stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    RankBuilder rank(schedule, stage);
    for (int m = 0; m < microbatches; ++m) rank.forward(m);
    for (int m = 0; m < microbatches; ++m) rank.backward(m);
  }
  return schedule;
}

Schedule one_f_one_b(int stages, int microbatches) {
  Schedule schedule = make_empty("1f1b", stages, microbatches);
  for (int stage = 0; stage < stages; ++stage) {
    RankBuilder rank(schedule, stage);
    // The first gradient reaches this stage after a forward and a backward of every later stage. Meanwhile it may
    // forward one micro-batch for each of them, when there are that many.
    const int warm_up = std::min(stages - 1 - stage, microbatches);
    int forwarded = 0, backwarded = 0;
    while (forwarded < warm_up) rank.forward(forwarded++);
    while (forwarded < microbatches) {
      rank.forward(forwarded++);
      rank.backward(backwarded++);
    }
    while (backwarded < microbatches) rank.backward(backwarded++);
  }
  return schedule;
}

Schedule forward_only(int stages, int microbatches) {
  Schedule schedule = make_empty("forward-only", stages, microbatches);
  schedule.backward = false;
  for (int stage = 0; stage < stages; ++stage) {
    RankBuilder rank(schedule, stage);
    for (int m = 0; m < microbatches; ++m) rank.forward(m);
  }
  return schedule;
}

Schedule make_schedule(std::string_view name, int stages, int microbatches) {
  if (name != "gpipe" && name != "1f1b") {
    fail(ExitCode::usage, "pipeline", "unknown schedule '{}'; expected gpipe or 1f1b; change --pipeline", name);
  }
  return name == "gpipe" && stages > 1 ? gpipe(stages, microbatches) : one_f_one_b(stages, microbatches);
}

}  // namespace trireme::pipeline
