// Level 3: the kernel in use, cuda/kernels/sgd.cu. Compared with level 2 a launch takes up to 64 tensors, as a list in
// its parameters; a block takes 4096 elements of one, in four iterations of 16-byte accesses. Velocity and low copy are
// optional. This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "examples/cuda_lab/sgd/ladder.h"

namespace trireme::cuda::lab::sgd {

void shipped(const Problem& p, Stream stream) { ::trireme::cuda::sgd(p.tensors, p.settings, nullptr, stream); }

namespace {

constexpr std::size_t kMostTensors = 64;  // as in cuda/kernels/sgd.cu
constexpr double kTile = 4096;

/// Launches over each tensor of `bytes` an element; a warp's load of a float is one wavefront.
MemoryCost per_tensor(const Problem& p, double bytes) {
  MemoryCost cost = {};
  for (const auto& t : p.tensors) {
    const auto count = static_cast<double>(t.count);
    cost = cost + cost_of({.blocks = std::ceil(count / kThreads),
                           .resident = 8,
                           .bytes = bytes * count,
                           .waits = 1,
                           .barriers = 0,
                           .wavefronts = bytes * kThreads / 128});
  }
  return cost;
}

/// Registers leave room for six blocks; each loops four times.
MemoryCost per_list(const Problem& p) {
  MemoryCost cost = {};
  for (std::size_t first = 0; first < p.tensors.size(); first += kMostTensors) {
    const auto rest = p.tensors.subspan(first);
    double bytes = 0, tiles = 0;
    for (const auto& tensor : rest.first(std::min(rest.size(), kMostTensors))) {
      bytes += 22 * static_cast<double>(tensor.count);
      tiles += std::ceil(static_cast<double>(tensor.count) / kTile);
    }
    cost = cost + cost_of({.blocks = tiles,
                           .resident = 6,
                           .bytes = bytes,
                           .waits = 4,
                           .barriers = 0,
                           .wavefronts = 22 * kTile / 128});
  }
  return cost;
}

constexpr std::array all = {
    MemoryLevel<Problem>{"unfused", "velocity, weight, low copy", &unfused,
                         [](const Problem& p) { return per_tensor(p, 16) + per_tensor(p, 12) + per_tensor(p, 6); }},
    MemoryLevel<Problem>{"fused", "one kernel", &fused, [](const Problem& p) { return per_tensor(p, 22); }},
    MemoryLevel<Problem>{"sgd", "64 tensors in a launch", &shipped, &per_list},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::sgd
