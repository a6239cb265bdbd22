#include "parallel/pipeline/drawing.h"

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/check.h"

namespace trireme::pipeline {

namespace {

std::string counted(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string joined(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += fmt::format("{}{}", text.empty() ? "" : " ", value);
  return text;
}

}  // namespace

std::string label(const Schedule& schedule, const Action& action) {
  const char letter = action.kind == ActionKind::forward ? 'F' : action.kind == ActionKind::backward_weight ? 'W' : 'B';
  const std::string text = fmt::format("{}{}", letter, action.microbatch);
  if (schedule.chunks() == 1) return text;
  const int chunk = action.stage / schedule.rank_count();
  return text + (chunk < 26 ? std::string(1, static_cast<char>('a' + chunk)) : fmt::format(".{}", chunk));
}

std::string headline(const Schedule& schedule, const Costs& costs) {
  const ScheduleCosts totals = check(schedule, costs);
  const std::string stages = schedule.chunks() == 1 ? counted(schedule.stages, "stage")
                                                    : fmt::format("{} on {}", counted(schedule.stages, "stage"),
                                                                  counted(schedule.rank_count(), "rank"));
  return fmt::format(
      "{}: {}, {}; bubble {:.1f}% of ideal time, {:.1f}% of total", schedule.name, stages,
      schedule.microbatches == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", schedule.microbatches),
      100 * totals.bubble_of_ideal, 100 * totals.bubble_of_total);
}

std::string figures(const Schedule& schedule) {
  const ScheduleCosts totals = check(schedule);
  return fmt::format("activations alive at most, per rank: {}\nmessages sent, per rank:             {} (in all {})\n",
                     joined(totals.peak_live), joined(totals.sent), totals.messages);
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
    const auto add = [&](const std::string& what) {
      row += fmt::format("{:<{}}", what, cell);
      ++now;
    };
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
