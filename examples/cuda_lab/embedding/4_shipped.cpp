// Level 4: the kernel in use, embedding_backward of cuda/kernels/embedding.cu. It is level 2 with up to 512 blocks,
// each with rows that are far apart, so the ids are read a hundred times less: 34 MB. A block lists those of its rows
// in shared memory, in order, with ballots. When the list is full, it adds the listed rows of dy, eight at a time:
// their loads, and those of their rows of dweight, are under way together, as are the next eight rows of dy. Unlike
// level 3 it takes any number of tokens and any slice of the vocabulary, in one launch and without workspace.
// Read next: docs/ladder.md.
#include <array>

#include "cuda/kernels/embedding.h"
#include "examples/cuda_lab/embedding/ladder.h"

namespace trireme::cuda::lab::embedding {

void shipped(const Problem& p, Stream stream) {
  embedding_backward(p.dy, p.ids, 0, p.tokens, p.vocabulary, p.width, p.dweight, stream);
}

namespace {

constexpr std::array all = {
#if defined(__CUDACC__)
    Level<Problem>{"atomics", "each token by itself; other bits each time", 0.02821, &atomics},
#endif
    Level<Problem>{"block_per_row", "a block looks for the tokens of its row", 3.094, &block_per_row},
    Level<Problem>{"sorted", "sort, then a block a segment", 0.8926, &sorted},
    Level<Problem>{"embedding", "lists, eight rows at a time", 0.1279, &shipped},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::embedding
