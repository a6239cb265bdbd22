// Split: how tensor parallelism cuts the weight of a Linear. Read next: nn/linear.h.
#pragma once

#include <cstdint>

namespace trireme::nn {

/// Which dim of the weight is split over tp: see the top of nn/linear.h.
enum class Split : std::uint8_t { none, out, in };

}  // namespace trireme::nn
