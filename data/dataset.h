// Dataset: samples in memory, in a random order. The row of sample s is a pure function of (seed, s). An epoch has as
// many samples as there are rows: each row occurs once in it, and each epoch has a new random order; with shuffle =
// false, the order of the rows.
//
//   const auto data = std::make_shared<Dataset>(Dataset({{"x", x}, {"y", y}}, seed));  // x [N, ..], y [N, ..]
//   Loader loader(data, {.global_batch = 32, .micro_batch = 32});
//   const Batch batch = loader.next();  // batch["x"] [32, ..]
// Read next: data/source.h; data/sample_source.h, where samples are made one at a time.
#pragma once

#include "data/source.h"

namespace trireme {

/// Samples in memory, in a random order; see the top of this file.
/// @snippet training_test.cpp dataset
class Dataset : public DataSource {
 public:
  /// `tensors`: on the host, with equally many rows (dim 0); a view is copied. Throws ExitCode::data if there are no
  /// rows, or if their numbers differ.
  Dataset(std::map<std::string, Tensor, std::less<>> tensors, std::uint64_t seed, bool shuffle = true);

  std::int64_t rows() const { return rows_; }
  std::int64_t row(std::int64_t sample) const;  ///< of a sample, 0 <= row < rows()
  Batch make_batch(std::int64_t first, std::int64_t count) const override;

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::int64_t rows_ = 0;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace trireme
