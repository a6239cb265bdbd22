// A pipeline schedule as a picture: the timeline of parallel/pipeline/timeline.h, with a row per rank and a box per
// computation.
#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace trireme::pictures {

/// Returns an SVG document. Boxes show the number of their micro-batch. Forwards are blue, backwards (or their input
/// part) green, weight parts orange; later chunks of a rank have a stronger colour. At the right end of a row is the
/// largest number of activations that the rank keeps. `unit`: pixels per unit of time; 0: as wide as the numbers in the
/// boxes need. Checks the schedule first.
std::string draw_schedule(const pipeline::Schedule& schedule, const pipeline::Costs& costs = {}, double unit = 0);

}  // namespace trireme::pictures
