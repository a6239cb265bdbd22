// Level 4: the kernel in use, adamw of cuda/kernels/optimizer.cu. Compared with level 3, a launch takes up to 64
// tensors, as a list in its parameters; a block takes 4096 elements of one. The low copy is optional, and gradients may
// be f32 with a 16-bit copy. The factor comes from a kernel of one thread, in f64 as on the CPU, which looks at the
// loss as well; SGD reads the same number. This file also has the cost of each level. Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/kernels/update_scale.h"
#include "examples/cuda_lab/adamw/ladder.h"

namespace trireme::cuda::lab::adamw {

void shipped(const Problem& p, Stream stream) {
  update_scale(nullptr, p.norm_squared, 1 / static_cast<double>(p.settings.gradient_scale),
               static_cast<double>(p.max_norm), p.scaled, stream);
  ::trireme::cuda::adamw(p.tensors, p.settings, p.scaled, stream);
}

namespace {

/// A launch over one tensor, `bytes` an element. A warp's load of a float is one wavefront.
MemoryCost launch_cost(double count, double per_thread, double bytes) {
  return cost_of(
      {std::ceil(count / (kThreads * per_thread)), 8, bytes * count, 1, 0, bytes * kThreads * per_thread / 128});
}

MemoryCost three_launches(const Problem& p, double per_thread) {
  MemoryCost cost = {};
  for (const auto& t : p.tensors) {
    const auto count = static_cast<double>(t.count);
    cost = cost + launch_cost(count, per_thread, 6) + launch_cost(count, per_thread, 28) +
           launch_cost(count, per_thread, 6);
  }
  return cost;
}

/// Registers leave room for five blocks; each loops four times.
MemoryCost per_list(const Problem& p) {
  MemoryCost cost = {};
  for (std::size_t first = 0; first < p.tensors.size(); first += kOptimizerMostTensors) {
    const auto rest = p.tensors.subspan(first);
    double bytes = 0, tiles = 0;
    for (const auto& tensor : rest.first(std::min<std::size_t>(rest.size(), kOptimizerMostTensors))) {
      bytes += 28 * static_cast<double>(tensor.count);
      tiles += std::ceil(static_cast<double>(tensor.count) / kOptimizerTile);
    }
    cost = cost + cost_of({.blocks = tiles,
                           .resident = 5,
                           .bytes = bytes,
                           .waits = 4,
                           .barriers = 0,
                           .wavefronts = 28.0 * kOptimizerTile / 128});
  }
  return cost;
}

constexpr std::array all = {
    MemoryLevel<Problem>{"unfused", "scale, update, round; one element per thread", &unfused,
                         [](const Problem& p) { return three_launches(p, 1); }},
    MemoryLevel<Problem>{"vectors", "16 bytes at a time", &vectors,
                         [](const Problem& p) { return three_launches(p, 4); }},
    MemoryLevel<Problem>{"fused", "one kernel", &fused,
                         [](const Problem& p) {
                           MemoryCost cost = {};
                           for (const auto& t : p.tensors)
                             cost = cost + launch_cost(static_cast<double>(t.count), 4, 28);
                           return cost;
                         }},
    MemoryLevel<Problem>{"optimizer", "64 tensors in a launch", &shipped, &per_list},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::adamw
