// How far can rounding carry? Weights that differ by about the unit roundoff are weights that some rounding could have
// made. What a model computes from them shows, tensor by tensor, how large a difference between two right runs may be:
// small where a sum is well conditioned, of any size where terms cancel, or where a router chooses between two experts
// that are nearly equal. Read next: train/parity/parity.cpp, which judges differences by it.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"

namespace trireme {

/// Multiplies every weight, and its master, by 1 + `factor` x a normal random number that is a function of `seed`, the
/// parameter's name and the element's global index: all copies of a weight change alike, on any mesh. Settles what the
/// optimizer's weights wait for, so collective.
void disturb(optim::Optimizer& optimizer, double factor, std::uint64_t seed);

}  // namespace trireme
