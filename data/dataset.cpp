#include "data/dataset.h"

#include <cstring>
#include <utility>

#include "core/error.h"
#include "data/shuffle.h"

namespace trireme {
Dataset::Dataset(std::map<std::string, Tensor, std::less<>> tensors, std::uint64_t seed, bool shuffle)
    : tensors_(std::move(tensors)), seed_(seed), shuffle_(shuffle) {
  for (auto& [name, tensor] : tensors_) {
    if (!tensor.defined() || tensor.dims() == 0)
      fail(ExitCode::data, "dataset", "'{}' is {}; expected rows: a tensor with at least one dim", name,
           tensor.defined() ? "a single number" : "undefined");
    tensor = contiguous(tensor);  // make_batch copies rows as bytes
    if (rows_ == 0) rows_ = tensor.size(0);
    if (tensor.size(0) != rows_ || rows_ == 0)
      fail(ExitCode::data, "dataset", "'{}' has {} rows, '{}' {}; expected as many in each, at least one", name,
           tensor.size(0), tensors_.begin()->first, rows_);
  }
  if (tensors_.empty()) fail(ExitCode::data, "dataset", "there are no tensors; expected at least one");
}

std::int64_t Dataset::row(std::int64_t sample) const {
  require(sample >= 0, "dataset", "sample {} does not exist", sample);
  return row_of_sample(sample, rows_, seed_, shuffle_);
}

Batch Dataset::make_batch(std::int64_t first, std::int64_t count) const {
  require(count >= 1, "dataset", "a batch of {} samples; expected at least 1", count);
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) batch.sample_ids.push_back(first + i);
  for (const auto& [name, tensor] : tensors_) {
    const Tensor rows = Tensor::empty(tensor.shape().with(0, count), tensor.dtype());  // [B, ..]
    const std::size_t bytes = static_cast<std::size_t>(tensor.bytes() / rows_);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<char*>(rows.raw()) + static_cast<std::size_t>(i) * bytes,
                  static_cast<const char*>(tensor.raw()) + static_cast<std::size_t>(row(first + i)) * bytes, bytes);
    batch.tensors.emplace(name, rows);
  }
  return batch;
}

}  // namespace trireme
