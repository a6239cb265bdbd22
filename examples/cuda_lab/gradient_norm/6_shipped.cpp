// Level 6: the kernel in use, sum_squares of cuda/kernels/reduce.cu. Compared with level 5, a launch takes up to 128
// tensors: its parameters have a list of where each begins, in which a block finds its place. There are three launches
// for 148 tensors. It takes any dtype and adds in f64, so that the norm does not depend on how a model is sharded. Its
// loads are half as wide as those of level 5, in sixteen iterations. Each checks whether the address allows 8 bytes at
// once, so nvcc does not overlap them.
// Read next: docs/ladder.md.
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

constexpr std::array all = {
    Level<Problem>{"one_thread", "one thread per block", 6.908, &one_thread},
    Level<Problem>{"interleaved", "256 threads, a tree", 0.5541, &interleaved},
    Level<Problem>{"sequential", "the tree's threads are neighbours", 0.5547, &sequential},
    Level<Problem>{"shuffles", "lanes exchange registers", 0.5376, &shuffles},
    Level<Problem>{"vectors", "all loads at once, 16 bytes each", 0.6368, &vectors},
    Level<Problem>{"reduce", "128 tensors in a launch", 0.09264, &shipped},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::gradient_norm
