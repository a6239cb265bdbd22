// The ladder of the embedding's gradient: dweight[ids[n]] += dy[n], in f32. Equal tokens write to one row, and most of
// a text consists of few tokens. The levels differ in which threads add them, in which order, and how they find them.
// For a batch of GPT-2 124M, 16,384 tokens, 50,257 rows of 768, each token's row of dy is read in bf16 and its row of
// dweight read and written: 126 MB, 26 us at 4.8 TB/s; less where tokens repeat and their row is kept.
// Read next: examples/cuda_lab/embedding/1_atomics.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::embedding {

struct Problem {
  const bf16* dy;           ///< [tokens, width]
  const std::int32_t* ids;  ///< [tokens]; those outside 0 to vocabulary - 1 are left out
  int tokens, vocabulary, width;
  float* dweight;       ///< [vocabulary, width]; added to
  std::uint64_t* keys;  ///< [tokens] workspace of `sorted`
};

constexpr int kMostSorted = 16384;  ///< tokens that `sorted` takes: a block's shared memory holds as many keys

#if defined(__CUDACC__)
void atomics(const Problem& p, Stream stream = nullptr);  // not under emulation, which has no atomics between blocks
#endif
void block_per_row(const Problem& p, Stream stream = nullptr);
void sorted(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::embedding
