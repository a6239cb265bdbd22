#include "parallel/pipeline/timeline.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/check.h"

namespace trireme::pipeline {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

std::vector<std::vector<Interval>> simulate(const Schedule& schedule) {
  constexpr int never = -1;
  const auto stages = at(schedule.stages), microbatches = at(schedule.microbatches);
  std::vector<std::vector<int>> forward_end(stages, std::vector<int>(microbatches, never)), backward_end = forward_end;
  std::vector<std::vector<Interval>> timeline(stages);
  std::vector<std::size_t> next(stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < stages; ++rank) {
      for (const auto& list = schedule.ranks[rank]; next[rank] < list.size(); ++next[rank], moved = true) {
        const Action& action = list[next[rank]];
        if (is_message(action.kind)) continue;
        const bool forward = action.kind == ActionKind::forward;
        const auto m = at(action.microbatch);
        int ready = 0;
        if (forward && rank > 0) ready = forward_end[rank - 1][m];
        if (!forward && rank + 1 < stages) ready = backward_end[rank + 1][m];
        if (ready == never) break;
        const int start = std::max(ready, timeline[rank].empty() ? 0 : timeline[rank].back().end);
        const int end = start + (forward ? forward_cost : backward_cost);
        timeline[rank].push_back({action, start, end});
        (forward ? forward_end : backward_end)[rank][m] = end;
      }
    }
  }
  return timeline;
}

std::string render(const Schedule& schedule, int columns) {
  const Proof proof = check(schedule);
  std::string text =
      fmt::format("{}: {} {}, {} {}; bubble {:.1f}% of ideal time, {:.1f}% of total; at most {} micro-batches alive\n",
                  schedule.name, schedule.stages, schedule.stages == 1 ? "stage" : "stages", schedule.microbatches,
                  schedule.microbatches == 1 ? "micro-batch" : "micro-batches", 100 * proof.bubble_of_ideal,
                  100 * proof.bubble_of_total, *std::max_element(proof.peak_live.begin(), proof.peak_live.end()));
  const auto timeline = simulate(schedule);
  const auto cell = fmt::formatted_size("F{} ", schedule.microbatches - 1);
  const auto stage_width = fmt::formatted_size("{}", schedule.stages - 1);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    std::string row = fmt::format("stage {:>{}} |", stage, stage_width);
    int now = 0;
    const auto add = [&](const std::string& what) { row += fmt::format("{:<{}}", what, cell), ++now; };
    for (const Interval& interval : timeline[at(stage)]) {
      while (now < interval.start) add(".");
      add(fmt::format("{}{}", interval.action.kind == ActionKind::forward ? "F" : "B", interval.action.microbatch));
      while (now < interval.end) add(std::string(cell - 1, '-'));
    }
    row.erase(row.find_last_not_of(' ') + 1);
    if (columns > 3 && row.size() > at(columns)) row = row.substr(0, at(columns - 3)) + "...";
    text += row + "\n";
  }
  return text;
}

}  // namespace trireme::pipeline
