// How large can the effect of rounding be? Weights that differ by about the unit roundoff could have resulted from
// rounding. A model computed from such weights shows, tensor by tensor, how large a difference between two correct runs
// may be: small where a sum is well conditioned, of any size where terms cancel or where a router chooses between two
// experts that are nearly equal. Read next: check/parity/parity.cpp, which judges differences by it.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"

namespace trireme {

/// Multiplies every weight, and its master, by 1 + `factor` x a normal random number. The number is a function of
/// `seed`, the parameter's name and the element's global index, so all copies of a weight change alike, on any mesh.
/// Collective: first waits for weights that the optimizer still communicates.
void disturb(optim::Optimizer& optimizer, double factor, std::uint64_t seed);

}  // namespace trireme
