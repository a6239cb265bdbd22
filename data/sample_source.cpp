#include "data/sample_source.h"

#include <utility>

#include "core/error.h"
#include "data/shuffle.h"

namespace trireme {
namespace {

/// Copies a sample into row `row` of the tensors of a batch.
void copy_sample(const Sample& sample, std::int64_t index, std::int64_t row, Batch& batch) {
  if (sample.size() != batch.tensors.size())
    fail(ExitCode::data, "sample source",
         "sample {} has {} tensors, the first of its batch {}; expected the same names", index, sample.size(),
         batch.tensors.size());
  for (const auto& [name, tensor] : sample) {
    const auto found = batch.tensors.find(name);
    if (found == batch.tensors.end())
      fail(ExitCode::data, "sample source",
           "sample {} has '{}', which the first of its batch has not; expected the "
           "same names",
           index, name);
    Tensor place = view::select(found->second, 0, row);
    if (!tensor.defined() || tensor.shape() != place.shape() || tensor.dtype() != place.dtype())
      fail(ExitCode::data, "sample source",
           "'{}' of sample {} is {} {}, of the first sample of its batch {} {}; expected one shape and dtype; pad or "
           "cut the samples in get()",
           name, index, tensor.defined() ? trireme::name(tensor.dtype()) : "undefined", tensor.shape(),
           trireme::name(place.dtype()), place.shape());
    copy(tensor, place);
  }
}

/// Tensors for `count` samples like this one.
Batch room_for(const Sample& sample, std::int64_t index, std::int64_t count) {
  Batch batch;
  for (const auto& [name, tensor] : sample) {
    if (!tensor.defined())
      fail(ExitCode::data, "sample source", "'{}' of sample {} is undefined; expected a tensor", name, index);
    std::vector<std::int64_t> extents = {count};
    extents.insert(extents.end(), tensor.shape().begin(), tensor.shape().end());
    batch.tensors.emplace(name, Tensor::empty(Shape(std::span<const std::int64_t>(extents)), tensor.dtype()));
  }
  return batch;
}

}  // namespace

SampleSource::SampleSource(std::shared_ptr<const SampleSet> set, std::uint64_t seed, bool shuffle)
    : set_(std::move(set)), size_(set_ == nullptr ? 0 : set_->size()), seed_(seed), shuffle_(shuffle) {
  if (set_ == nullptr) fail(ExitCode::data, "sample source", "the set is null; expected a SampleSet");
  if (size_ < 1) fail(ExitCode::data, "sample source", "a set of {} samples; expected at least one", size_);
}

std::int64_t SampleSource::index(std::int64_t sample) const {
  require(sample >= 0, "sample source", "sample {} does not exist", sample);
  return row_of_sample(sample, size_, seed_, shuffle_);
}

Batch SampleSource::make_batch(std::int64_t first, std::int64_t count) const {
  require(count >= 1, "sample source", "a batch of {} samples; expected at least 1", count);
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = this->index(first + i);
    const Sample sample = set_->get(index);
    if (i == 0) batch = room_for(sample, index, count);
    copy_sample(sample, index, i, batch);
  }
  for (std::int64_t i = 0; i < count; ++i) batch.sample_ids.push_back(first + i);
  return batch;
}

}  // namespace trireme
