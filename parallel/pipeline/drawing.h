// A schedule as text, with its cost: for --dry-run and the docs. examples/pictures/schedule.h draws the same as a
// picture.
// Read next: parallel/pipeline/timeline.h, parallel/pipeline/check.h.
#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

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
