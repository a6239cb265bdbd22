// A pipeline schedule as a picture: the timeline of parallel/pipeline/timeline.h, a row per rank, a box per
// computation.
#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace trireme::pictures {

/// An SVG document. Boxes carry the number of their micro-batch; forwards are blue, backwards (or their input's part)
/// green, weights' parts orange; a later chunk of a rank has a stronger colour. At the right end of a row stands how
/// many activations the rank keeps at most. `unit`: pixels of a unit of time; 0: what the numbers in the boxes need.
/// Checks the schedule first.
std::string draw_schedule(const pipeline::Schedule& schedule, const pipeline::Costs& costs = {}, double unit = 0);

}  // namespace trireme::pictures
