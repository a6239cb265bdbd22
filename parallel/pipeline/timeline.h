// A schedule in time: when each computation runs if messages take no time, and a text drawing of this for --dry-run and
// the docs. examples/pictures/schedule.h draws the same as a picture.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace trireme::pipeline {

/// Units of time of a stage's computations. A backward takes input + weight: two matrix products for each one of
/// forward.
struct Costs {
  int forward = 1, input = 1, weight = 1;
  int of(ActionKind kind) const;  ///< 0 for a message
  /// The total of a micro-batch on a stage.
  int sum(bool backward) const { return forward + (backward ? input + weight : 0); }
};

struct Interval {
  Action action;
  int start = 0, end = 0;
};

/// The computations of every rank, in order. Each runs after the previous one on its rank and after the one that makes
/// its input. The schedule must pass check(); otherwise the lists may end early, at a computation that waits forever.
std::vector<std::vector<Interval>> simulate(const Schedule& schedule, const Costs& costs = {});

/// The first line of render(): name, sizes, bubble.
std::string headline(const Schedule& schedule, const Costs& costs = {});
/// Peak live activations and messages of every rank: two lines.
std::string figures(const Schedule& schedule);

/// headline(), one row per rank, a column per unit of time, and figures(): "F3" forward of micro-batch 3, "B3 --" its
/// backward, in a split one "B3" its input's part and "W3" its weights', "." idle; with several chunks a letter names
/// the chunk: "F3b". Rows are cut after `columns` characters; 0: never. Checks the schedule first.
std::string render(const Schedule& schedule, int columns = 0, const Costs& costs = {});

/// "F3", "B3", "W3", or "F3b" when ranks hold several chunks.
std::string label(const Schedule& schedule, const Action& action);

}  // namespace trireme::pipeline
