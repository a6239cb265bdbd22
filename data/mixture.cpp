// Batches of several sources.
#include "data/mixture.h"

#include <utility>

#include "core/error.h"

namespace trireme {

Mixture::Mixture(std::vector<std::shared_ptr<const DataSource>> sources, const std::vector<double>& weights,
                 std::uint64_t seed)
    : sources_(std::move(sources)), order_(weights, seed) {
  require(sources_.size() == weights.size(), "mixture", "{} sources and {} weights", sources_.size(), weights.size());
}

Batch Mixture::make_batch(std::int64_t first, std::int64_t count) const {
  require(count >= 1, "mixture", "a batch of {} samples; expected at least 1", count);
  Batch batch;
  for (std::int64_t row = 0; row < count; ++row) {
    const MixtureOrder::SourceSample found = order_.locate(first + row);
    const Batch one = sources_[found.source]->make_batch(found.sample, 1);
    for (const auto& [name, tensor] : one.tensors) {
      if (row == 0) {
        std::vector<std::int64_t> extents(tensor.shape().begin(), tensor.shape().end());
        extents.front() = count;
        batch.tensors.emplace(name, Tensor::empty(Shape(std::span<const std::int64_t>(extents)), tensor.dtype()));
      }
      Tensor rows = view::slice(batch.tensors.at(name), 0, row, 1);
      require(rows.shape() == tensor.shape() && rows.dtype() == tensor.dtype(), "mixture",
              "the tensor '{}' of two sources differs in shape or dtype", name);
      copy(tensor, rows);
    }
    batch.sample_ids.push_back(first + row);
  }
  return batch;
}

std::optional<std::int64_t> Mixture::targets_of(std::int64_t first, std::int64_t count) const {
  std::int64_t sum = 0;
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    const MixtureOrder::SourceSample found = order_.locate(sample);
    const std::optional<std::int64_t> targets = sources_[found.source]->targets_of(found.sample, 1);
    if (!targets) return std::nullopt;
    sum += *targets;
  }
  return sum;
}

}  // namespace trireme
