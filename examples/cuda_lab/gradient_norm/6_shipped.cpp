// Level 6: the kernel in use, sum_squares of cuda/kernels/reduce.cu. Compared with level 5, a launch takes up to 128
// tensors: its parameters have a list of where each begins, in which a block finds its place. There are three launches
// for 148 tensors. It takes any dtype and adds in f64, so that the norm does not depend on how a model is sharded. Its
// loads are half as wide as those of level 5, in sixteen iterations. Each checks whether the address allows 8 bytes at
// once, so nvcc does not overlap them. This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <vector>

#include "cuda/kernels/reduce.h"
#include "cuda/kernels/tensor_list.h"
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

void shipped(const Problem& p, Stream stream) {
  std::vector<SquaresOf> all;
  for (const auto& tensor : p.tensors) all.push_back({tensor.gradient, tensor.count, DType::bf16});
  sum_squares(all, p.shipped_partials, p.result, stream);
}

namespace {

/// One block adds the partial sums.
MemoryCost second_pass(double partials, double bytes_each) {
  return cost_of({.blocks = 1,
                  .resident = 1,
                  .bytes = bytes_each * partials,
                  .waits = unrolled(partials / 256),
                  .barriers = 2,
                  .wavefronts = partials / 32});
}

/// A first pass with a launch per tensor; the work of a block of 4096 values.
MemoryCost per_tensor(const Problem& p, double resident, double waits, double barriers, double wavefronts) {
  MemoryCost cost = {};
  double tiles = 0;
  for (const auto& tensor : p.tensors) {
    cost = cost + cost_of({.blocks = static_cast<double>(tiles_of(tensor.count)),
                           .resident = resident,
                           .bytes = 2 * static_cast<double>(tensor.count),
                           .waits = waits,
                           .barriers = barriers,
                           .wavefronts = wavefronts});
    tiles += tiles_of(tensor.count);
  }
  return cost + second_pass(tiles, 4);
}

/// Lists of tensors. A block joins 256 sums in f64 in a tree.
MemoryCost per_list(const Problem& p) {
  MemoryCost cost = {};
  double all_tiles = 0;
  for (std::size_t first = 0; first < p.tensors.size(); first += kSquaresMostTensors) {
    const auto rest = p.tensors.subspan(first);
    double bytes = 0, tiles = 0;
    for (const auto& tensor : rest.first(std::min<std::size_t>(rest.size(), kSquaresMostTensors))) {
      bytes += 2 * static_cast<double>(tensor.count);
      tiles += static_cast<double>(cuda::tiles_of(tensor.count, kSquaresTile));
    }
    const double times = kSquaresTile / 4.0 / 256;
    cost = cost + cost_of({.blocks = tiles,
                           .resident = 8,
                           .bytes = bytes,
                           .waits = times,
                           .barriers = 9,
                           .wavefronts = times * 16 + 2 * 12 * 3});
    all_tiles += tiles;
  }
  return cost + second_pass(all_tiles, 8);
}

// Wavefronts of a block: 128 loads of 64 bytes, or 64 of 128 bytes; and the tree: two loads and a store a warp and
// step.
constexpr std::array all = {
    MemoryLevel<Problem>{"one_thread", "one thread per block", &one_thread,
                         [](const Problem& p) { return per_tensor(p, 32, 256, 0, 4096); }},
    MemoryLevel<Problem>{"interleaved", "256 threads, a tree", &interleaved,
                         [](const Problem& p) { return per_tensor(p, 8, unrolled(16), 9, 128 + 8 * 8 * 3); }},
    MemoryLevel<Problem>{"sequential", "the tree's threads are neighbours", &sequential,
                         [](const Problem& p) { return per_tensor(p, 8, unrolled(16), 9, 128 + 12 * 3); }},
    MemoryLevel<Problem>{"shuffles", "lanes exchange registers", &shuffles,
                         [](const Problem& p) { return per_tensor(p, 8, unrolled(16), 2, 128 + 12); }},
    MemoryLevel<Problem>{"vectors", "all loads at once, 16 bytes each", &vectors,
                         [](const Problem& p) { return per_tensor(p, 8, 1, 2, 64 + 12); }},
    MemoryLevel<Problem>{"reduce", "128 tensors in a launch", &shipped, &per_list},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::gradient_norm
