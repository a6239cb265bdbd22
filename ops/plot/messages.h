// A picture of the messages of one collective: a line for each rank, time to the right, and a stroke for each message
// from when and where it was sent to when and where it arrived.
// Read next: parallel/comm/algorithms/network.h, ops/plot/svg.h.
#pragma once

#include <string>

#include "parallel/comm/algorithms/network.h"

namespace trireme::pictures {

/// An SVG document. `title`: "all_reduce of 8 ranks by ring".
std::string draw_messages(const std::string& title, int ranks, const comm::Simulated& collective);

}  // namespace trireme::pictures
