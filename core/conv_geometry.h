// The sizes of a 2-d convolution, and the checks that belong to them.
// Read next: autograd/conv.h (the operation), core/cpu/conv.h (its products on the CPU).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "core/error.h"

namespace trireme {

/// x [N, C, H, W], weight [O, C / groups, R, S] -> y [N, O, OH, OW], with OH = (H + 2 p - d (R - 1) - 1) / s + 1.
/// Pairs are (height, width). Output channels of a group see only the input channels of that group.
struct ConvGeometry {
  std::int64_t batch = 0, in_channels = 0, height = 0, width = 0;
  std::int64_t out_channels = 0, kernel_height = 0, kernel_width = 0, groups = 1;
  std::array<std::int64_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};

  static constexpr std::int64_t out_extent(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                                           std::int64_t padding, std::int64_t dilation) {
    const std::int64_t room = extent + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
  std::int64_t out_height() const { return out_extent(height, kernel_height, stride[0], padding[0], dilation[0]); }
  std::int64_t out_width() const { return out_extent(width, kernel_width, stride[1], padding[1], dilation[1]); }
  std::int64_t out_positions() const { return out_height() * out_width(); }  ///< of one sample
  std::int64_t kernel_positions() const { return kernel_height * kernel_width; }
  std::int64_t in_group() const { return in_channels / groups; }    ///< input channels of a group
  std::int64_t out_group() const { return out_channels / groups; }  ///< output channels of a group
};

/// Refuses kernels, strides, paddings and dilations above 2^30, so that products of two of them fit into 64 bits.
/// Throws ExitCode::internal.
inline void require_extents(const char* where, std::initializer_list<std::int64_t> extents) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  for (const std::int64_t extent : extents)
    require(extent <= most, where, "a kernel, stride, padding or dilation of {}; expected at most 2^30", extent);
}

}  // namespace trireme
