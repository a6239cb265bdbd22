#include "parallel/pipeline/timeline.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/check.h"

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

std::string counted(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string joined(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += fmt::format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

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

std::string label(const Schedule& schedule, const Action& action) {
  const char letter = action.kind == ActionKind::forward ? 'F' : action.kind == ActionKind::backward_weight ? 'W' : 'B';
  const std::string text = fmt::format("{}{}", letter, action.microbatch);
  if (schedule.chunks() == 1) return text;
  const int chunk = action.stage / schedule.rank_count();
  return text + (chunk < 26 ? std::string(1, static_cast<char>('a' + chunk)) : fmt::format(".{}", chunk));
}

std::string headline(const Schedule& schedule, const Costs& costs) {
  const Proof proof = check(schedule, costs);
  const std::string stages = schedule.chunks() == 1 ? counted(schedule.stages, "stage")
                                                    : fmt::format("{} on {}", counted(schedule.stages, "stage"),
                                                                  counted(schedule.rank_count(), "rank"));
  return fmt::format(
      "{}: {}, {}; bubble {:.1f}% of ideal time, {:.1f}% of total", schedule.name, stages,
      schedule.microbatches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", schedule.microbatches),
      100 * proof.bubble_of_ideal, 100 * proof.bubble_of_total);
}

std::string figures(const Schedule& schedule) {
  const Proof proof = check(schedule);
  return fmt::format("activations alive at most, per rank: {}\nmessages sent, per rank:             {} (in all {})\n",
                     joined(proof.peak_live), joined(proof.sent), proof.messages);
}

std::string render(const Schedule& schedule, int columns, const Costs& costs) {
  std::string text = headline(schedule, costs) + "\n";
  const auto timeline = simulate(schedule, costs);
  std::size_t cell = 0;
  for (const auto& row : timeline) {
    for (const Interval& interval : row) cell = std::max(cell, label(schedule, interval.action).size() + 1);
  }
  const auto rank_width = fmt::formatted_size("{}", schedule.rank_count() - 1);
  for (int rank = 0; rank < schedule.rank_count(); ++rank) {
    std::string row = fmt::format("rank {:>{}} |", rank, rank_width);
    int now = 0;
    const auto add = [&](const std::string& what) { row += fmt::format("{:<{}}", what, cell), ++now; };
    for (const Interval& interval : timeline[at(rank)]) {
      while (now < interval.start) add(".");
      if (interval.start < interval.end) add(label(schedule, interval.action));
      while (now < interval.end) add(std::string(cell - 1, '-'));
    }
    row.erase(row.find_last_not_of(' ') + 1);
    if (columns > 3 && row.size() > at(columns)) row = row.substr(0, at(columns - 3)) + "...";
    text += row + "\n";
  }
  return text + figures(schedule);
}

}  // namespace trireme::pipeline
