// Rows by index: an embedding in a slice of the vocabulary and its gradient. The same kernels gather the tokens of each
// expert (ids: token of each slot, -1 for none) and return the experts' outputs. The gradient of a gather adds the rows
// whose ids are equal. Contracts: embedding and embedding_backward of core/kernels.h, for float, bf16 and f16. Bytes
// per value of b bytes: forward reads b and writes b. Backward reads b, and reads and writes 4 for each value of
// dweight that a token touches. Each block of backward also reads all ids, which stay in the L2 cache: at most 512
// blocks, times the stretches of 768 values of a row, 4 bytes for each token. For a batch of GPT-2 124M, 16,384 tokens
// and rows of 768 in bf16: 126 MB if no token repeats, 42 us at 3.0 TB/s.
// Read next: cuda/kernels/embedding.cu.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// y[n] = weight[ids[n] - first], or zeros if that is not one of the `rows` rows of weight.
template <class T>
void embedding(const T* weight,          ///< [rows, width]
               const std::int32_t* ids,  ///< [tokens]
               std::int64_t first, std::int64_t tokens, std::int64_t rows, std::int64_t width,
               T* y,  ///< [tokens, width]
               Stream stream = nullptr);

/// dweight[ids[n] - first] += dy[n] in the order of n: the same bits as on the CPU, without sorting or atomics.
template <class T>
void embedding_backward(const T* dy,              ///< [tokens, width]
                        const std::int32_t* ids,  ///< [tokens]
                        std::int64_t first, std::int64_t tokens, std::int64_t rows, std::int64_t width,
                        float* dweight,  ///< [rows, width]
                        Stream stream = nullptr);

}  // namespace trireme::cuda
