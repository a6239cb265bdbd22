// Samples made one at a time by your own code: files that are read, images that are decoded.
//
//   struct Squares : SampleSet {
//     std::int64_t size() const override { return 1000; }
//     Sample get(std::int64_t index) const override {
//       return {{"x", Tensor::full({1}, index)}, {"y", Tensor::full({1}, index * index)}};
//     }
//   };
//   const auto source = std::make_shared<SampleSource>(std::make_shared<Squares>(), seed);
//   Loader loader(source, {.global_batch = 32, .micro_batch = 32}, consumed, 8, 4);  // 8 batches ahead, on 4 threads
//   const Batch batch = loader.next();                                               // batch["x"] [32, 1]
//
// An epoch has size() samples. In each, every index occurs once, in a random order that is a pure function of (seed,
// epoch). Samples are numbered through all epochs: sample s is in epoch s / size(). So a batch may have the end of one
// epoch and the beginning of the next; a run is resumed from the number of samples that it has consumed; and ranks of
// dp take the parts of the batch that BatchPlan says.
// Read next: data/prefetch.h.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "data/source.h"

namespace trireme {

/// One sample: tensors by name, on the host, without a dim for the batch.
using Sample = std::map<std::string, Tensor, std::less<>>;

/// Samples by index: what you derive from. See the top of this file.
/// @snippet training_test.cpp samples
class SampleSet {
 public:
  virtual ~SampleSet() = default;
  virtual std::int64_t size() const = 0;  ///< the number of samples; must not change
  /// Sample `index`, 0 <= index < size(). Threads call this at the same time. All samples must have the same names,
  /// shapes and dtypes. Random changes of a sample (augmentation) must be a function of what it is given here.
  virtual Sample get(std::int64_t index) const = 0;
};

/// Batches of a SampleSet: tensors [B, ..] of the samples' names. Throws ExitCode::data if the set is empty, or if the
/// samples of a batch differ in names, shapes or dtypes.
class SampleSource : public DataSource {
 public:
  SampleSource(std::shared_ptr<const SampleSet> set, std::uint64_t seed, bool shuffle = true);
  std::int64_t size() const { return size_; }     ///< of the set
  std::int64_t index(std::int64_t sample) const;  ///< which sample of the set is sample number `sample`
  Batch make_batch(std::int64_t first, std::int64_t count) const override;

 private:
  std::shared_ptr<const SampleSet> set_;
  std::int64_t size_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace trireme
