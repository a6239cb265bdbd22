// A schedule in time: when each computation runs if a forward takes 1 unit of time, a backward 2 and a message none,
// and the drawing of that for --dry-run and the docs.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace trireme::pipeline {

inline constexpr int forward_cost = 1, backward_cost = 2;

struct Interval {
  Action action;
  int start = 0, end = 0;
};

/// The computations of every stage, in order. Each runs after the one before it on its rank and the one its message
/// comes from. The schedule must pass check().
std::vector<std::vector<Interval>> simulate(const Schedule& schedule);

/// One line of figures and one row per stage, a column per unit of time: "F3" forward of micro-batch 3, "B3 --" its
/// backward, "." idle. Rows are cut after `columns` characters; 0: never. Checks the schedule first.
std::string render(const Schedule& schedule, int columns = 0);

}  // namespace trireme::pipeline
