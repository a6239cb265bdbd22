// A schedule as a picture: the timeline of parallel/pipeline/timeline.h, a row per rank, a box per computation.
#pragma once

#include <string>

#include "parallel/pipeline/timeline.h"

namespace trireme::pipeline {

/// An SVG document. Boxes carry the number of their micro-batch; forwards are blue, backwards (or their input's part)
/// green, weights' parts orange; a later chunk of a rank is darker. Checks the schedule first.
std::string to_svg(const Schedule& schedule, const Costs& costs = {});

}  // namespace trireme::pipeline
