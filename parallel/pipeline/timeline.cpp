#include "parallel/pipeline/timeline.h"

#include <algorithm>

namespace trireme::pipeline {

namespace {

constexpr int never = -1;

/// When the forwards and the gradients of all stages are done.
class Finished {
 public:
  explicit Finished(const Schedule& schedule)
      : stages_(schedule.stages), microbatches_(schedule.microbatches), forwards_(at(stages_ * microbatches_), never) {
    gradients_ = forwards_;
  }

  /// The time at which the input of `action` from another stage is ready; never: not yet.
  int ready(const Action& action) const {
    if (action.kind == ActionKind::forward && action.stage > 0) return forwards_[index(action.stage - 1, action)];
    if (is_gradient(action.kind) && action.stage < stages_ - 1) return gradients_[index(action.stage + 1, action)];
    return 0;
  }
  void note(const Action& action, int end) {
    if (action.kind == ActionKind::forward) forwards_[index(action.stage, action)] = end;
    if (is_gradient(action.kind)) gradients_[index(action.stage, action)] = end;
  }

 private:
  std::size_t index(int stage, const Action& action) const { return at(stage * microbatches_ + action.microbatch); }

  int stages_, microbatches_;
  std::vector<int> forwards_, gradients_;  // [stage x micro-batch]
};

}  // namespace

int Costs::of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::forward:
      return forward;
    case ActionKind::backward:
      return input + weight;
    case ActionKind::backward_input:
      return input;
    case ActionKind::backward_weight:
      return weight;
    default:
      return 0;
  }
}

std::vector<std::vector<Interval>> simulate(const Schedule& schedule, const Costs& costs) {
  Finished finished(schedule);
  std::vector<std::vector<Interval>> timeline(schedule.ranks.size());
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (const auto& list = schedule.ranks[rank]; next[rank] < list.size(); ++next[rank], moved = true) {
        const Action& action = list[next[rank]];
        if (is_message(action.kind)) continue;
        const int ready = finished.ready(action);
        if (ready == never) break;
        const int start = std::max(ready, timeline[rank].empty() ? 0 : timeline[rank].back().end);
        const int end = start + costs.of(action.kind);
        timeline[rank].push_back({action, start, end});
        finished.note(action, end);
      }
    }
  }
  return timeline;
}

}  // namespace trireme::pipeline
