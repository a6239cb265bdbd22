// Several sources of samples, mixed by weight.
//
// Sample s of the mixture is sample j of source k, and both are a function of (seed, s), without state: so a run is
// resumed from the number of its samples, on any mesh and with any number of workers. A period is 10,000 samples. Of
// each, source k has exactly n_k, its weight in ten-thousandths; a random order, new in each period, says at which
// places. The samples of a source are counted through all periods, so that it is read from its beginning to its end and
// then again, in the order that it gives itself.
//
//   --data web:0.7,books:0.2,code:0.1
//
// Read next: data/corpus.h, data/source.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/source.h"

namespace trireme {

/// A source and its share of the samples.
struct MixturePart {
  std::string path;
  double weight = 1;  ///< of all parts together: 1
};

/// The parts of `--data A:0.7,B:0.3`. Weights are positive numbers; only their ratios count. A text without weights,
/// and one that is the name of a file or a folder, is one part. Throws ExitCode::usage for a list in which only some
/// parts have a weight, a weight that is not a positive number, or less than a ten-thousandth of all, and for a part
/// that occurs twice.
std::vector<MixturePart> parse_mixture(std::string_view text);

/// Which sample of which source is sample s: see the top of this file.
class MixtureOrder {
 public:
  static constexpr std::int64_t period = 10'000;

  /// Weights of which the sum is 1. Throws ExitCode::usage if one is less than 1 / period.
  MixtureOrder(const std::vector<double>& weights, std::uint64_t seed);

  /// A sample of a source.
  struct SourceSample {
    std::size_t source = 0;
    std::int64_t sample = 0;  ///< of that source
  };
  SourceSample locate(std::int64_t sample) const;  ///< of a sample of the mixture
  /// How many of the first `samples` samples are of a source.
  std::int64_t count(std::size_t source, std::int64_t samples) const;
  std::size_t sources() const { return ends_.size(); }

 private:
  std::vector<std::int64_t> ends_;  // of the sources, in a period before it is shuffled
  std::uint64_t seed_;
};

/// How many samples of each source were taken, for every step of a run: remembers the order of one period. Any thread
/// may ask.
class MixtureCounter {
 public:
  explicit MixtureCounter(MixtureOrder order) : order_(std::move(order)) {}
  std::int64_t count(std::size_t source, std::int64_t samples) const;  ///< MixtureOrder::count()

 private:
  MixtureOrder order_;
  mutable std::mutex mutex_;
  mutable std::int64_t turn_ = -1;              // the period of sources_
  mutable std::vector<std::uint16_t> sources_;  // of its samples
};

/// The samples of several sources, in that order. Their batches must have the same tensors, with equal shapes of a
/// sample and equal dtypes.
class Mixture : public DataSource {
 public:
  Mixture(std::vector<std::shared_ptr<const DataSource>> sources, const std::vector<double>& weights,
          std::uint64_t seed);
  const MixtureOrder& order() const { return order_; }
  Batch make_batch(std::int64_t first, std::int64_t count) const override;
  /// Nothing, unless all sources say it.
  std::optional<std::int64_t> targets_of(std::int64_t first, std::int64_t count) const override;

 private:
  std::vector<std::shared_ptr<const DataSource>> sources_;
  MixtureOrder order_;
};

/// A seed for source number `source` of a mixture.
std::uint64_t seed_of_source(std::uint64_t seed, std::size_t source);

}  // namespace trireme
