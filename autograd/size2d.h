// Size2d: a pair (height, width), as convolution and pooling take it. One number stands for both: {.padding = 1} is
// {.padding = {1, 1}}. Read next: autograd/conv.h.
#pragma once

#include <array>
#include <cstdint>

namespace trireme {

/// (height, width).
struct Size2d : std::array<std::int64_t, 2> {
  // NOLINTBEGIN(google-explicit-constructor): the conversions are what this type is for
  constexpr Size2d(std::int64_t both) : Size2d(both, both) {}
  constexpr Size2d(std::int64_t height, std::int64_t width) : std::array<std::int64_t, 2>{height, width} {}
  constexpr Size2d(const std::array<std::int64_t, 2>& pair) : std::array<std::int64_t, 2>(pair) {}
  // NOLINTEND(google-explicit-constructor)
};

}  // namespace trireme
