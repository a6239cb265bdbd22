// Batches of made-up tokens: a sample is a function of its number alone, whichever rank asks for it.
// Read next: data/batch.h, tests/parity/training.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/random.h"
#include "data/batch.h"

namespace trireme::testing {

/// Samples [first, first + count), each `length` inputs and as many targets below `vocab`.
inline Batch made_up_batch(std::int64_t first, std::int64_t count, std::int64_t length, std::int64_t vocab) {
  const Tensor inputs = Tensor::empty({count, length}, DType::i32),
               targets = Tensor::empty({count, length}, DType::i32);
  for (std::int64_t i = 0; i < count * length; ++i) {
    const auto index = static_cast<std::uint64_t>(first * length + i);
    inputs.data<std::int32_t>()[i] = static_cast<std::int32_t>(random_word(5, 1, index) % vocab);
    targets.data<std::int32_t>()[i] = static_cast<std::int32_t>(random_word(5, 2, index) % vocab);
  }
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + i);
  return token_batch(inputs, targets, std::move(ids));
}

}  // namespace trireme::testing
