#include "nn/documents.h"

#include <algorithm>

namespace trireme::nn {

Tensor document_starts(const Tensor& ids, std::int64_t separator) {
  const Tensor tokens = contiguous(ids);
  const std::int64_t length = ids.size(1);
  Tensor starts = Tensor::empty(ids.shape(), DType::i32);
  for (std::int64_t b = 0; b < ids.size(0); ++b) {
    const std::int32_t* row = tokens.data<std::int32_t>() + b * length;
    std::int32_t* start = starts.data<std::int32_t>() + b * length;
    for (std::int64_t t = 0; t < length; ++t) {
      if (t == 0)
        start[t] = 0;
      else
        start[t] = row[t - 1] == separator ? static_cast<std::int32_t>(t) : start[t - 1];
    }
  }
  return starts;
}

Tensor document_positions(const Tensor& starts) {
  const Tensor dense = contiguous(starts);
  const std::int64_t length = starts.size(1);
  Tensor positions = Tensor::empty(starts.shape(), DType::i32);
  for (std::int64_t i = 0; i < starts.count(); ++i)
    positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % length) - dense.data<std::int32_t>()[i];
  return positions;
}

Tensor window_starts(const Tensor& starts, std::int64_t batch, std::int64_t first, std::int64_t length,
                     std::int64_t window) {
  const Tensor dense = starts.defined() ? contiguous(starts) : Tensor::zeros({batch, length}, DType::i32);
  Tensor seen = Tensor::empty({batch, length}, DType::i32);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < length; ++t)
      seen.data<std::int32_t>()[b * length + t] = static_cast<std::int32_t>(
          std::max<std::int64_t>(first + t - window + 1, dense.data<std::int32_t>()[b * length + t]));
  return seen;
}

Tensor first_keys(const Tensor& starts, const PositionRuns& queries, const PositionRuns& keys) {
  const std::int64_t count = queries.back().local + queries.back().length, length = starts.size(1);
  Tensor first = Tensor::zeros({starts.size(0), count}, DType::i32);
  for (std::int64_t b = 0; b < starts.size(0); ++b) {
    const std::int32_t* start = starts.data<std::int32_t>() + b * length;
    std::int32_t* row = first.data<std::int32_t>() + b * count;
    for (const PositionRun& run : queries) {
      for (std::int64_t i = 0; i < run.length; ++i) {
        for (const PositionRun& k : keys) {
          row[run.local + i] +=
              static_cast<std::int32_t>(std::clamp<std::int64_t>(start[run.global + i] - k.global, 0, k.length));
        }
      }
    }
  }
  return first;
}

}  // namespace trireme::nn
