// Batch: one micro-batch, tensors by name. A model says which names it reads; a data source makes them.
// Read next: data/source.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace trireme {

struct Batch {
  std::map<std::string, Tensor, std::less<>> tensors;  ///< dim 0 of each: the samples
  std::vector<std::int64_t> sample_ids;                ///< global sample numbers, or numbers in a validation set

  /// Throws ExitCode::internal, listing the batch's tensors, if `name` is not one of them.
  const Tensor& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return tensors.contains(name); }  ///< whether there is a tensor `name`
};

/// What a language model trains on. `inputs` [B, T] i32; `targets` [B, T] i32: the token after each input, -1 where the
/// loss leaves it out. Undefined `targets` are left out of the batch.
Batch token_batch(const Tensor& inputs, const Tensor& targets, std::vector<std::int64_t> sample_ids);

}  // namespace trireme
