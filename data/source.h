// Where samples come from. Samples are numbered; the same number is the same sample on every rank, on every mesh and
// after a resume, so one number describes a run's position in its data: how many samples it has consumed.
// Read next: data/sampler.h (windows of a text), data/dataset.h (tensors in memory), data/eval_windows.h (validation).
#pragma once

#include <optional>

#include "data/batch.h"

namespace trireme {

/// Batches by the numbers of their samples.
class DataSource {
 public:
  virtual ~DataSource() = default;
  /// Samples first .. first + count - 1. Threads may call this at the same time.
  virtual Batch make_batch(std::int64_t first, std::int64_t count) const = 0;
  /// Valid targets of these samples, if that differs from sample to sample: a step then divides by their number.
  /// Nothing: each sample has as many as the task says.
  virtual std::optional<std::int64_t> targets_of(std::int64_t first, std::int64_t count) const {
    return static_cast<void>(first), static_cast<void>(count), std::nullopt;
  }
};

/// Samples that a validation loss is the mean over. Samples past count() are asked for as well, to fill the last batch:
/// give them targets of -1, which count for nothing.
class ValidationSource : public DataSource {
 public:
  virtual std::int64_t count() const = 0;    ///< samples
  virtual std::int64_t targets() const = 0;  ///< valid targets of all samples together: what the loss is divided by
};

}  // namespace trireme
