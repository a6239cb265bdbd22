// DataLoader: the batches of an epoch, as torch.utils.data.DataLoader; no mesh is needed. An epoch's order is a
// function of (seed, epoch), so that a run which continues needs only its number. Threads prepare batches ahead, also
// those of the next epoch.
//
//   DataLoader loader({{"x", x}, {"y", y}}, {.batch = 32, .seed = 7});      // x [N, ..], y [N, ..]
//   for (int epoch = 0; epoch < 10; ++epoch)
//     for (const Batch& batch : loader.epoch(epoch))                      // batch["x"] [32, ..]; the last is shorter
//       backward(nn::mse_loss(net(batch["x"]), batch["y"], 1.0 / batch["y"].count()));
//
// With dp > 1, a batch is that of all ranks, and each rank gets its part: .dp_rank = mesh.coord(Axis::dp), .dp_size =
// mesh.size(Axis::dp). Loader (data/prefetch.h) is the layer below: an endless row of samples with micro-batches.
// Read next: data/dataset.h, data/sample_source.h.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/sample_source.h"

namespace trireme {

/// What a DataLoader does with its samples.
struct DataLoaderOptions {
  std::int64_t batch = 1;        ///< samples of a batch, on all dp ranks together
  std::uint64_t seed = 0;        ///< of the order
  bool shuffle = true;           ///< false: every epoch in the order of the samples
  bool drop_last = false;        ///< leaves out a last batch with fewer samples
  int dp_rank = 0, dp_size = 1;  ///< which part of each batch this rank gets; dp_size divides `batch`
  int depth = 2, workers = 1;    ///< batches prepared ahead; threads that make them
};

/// Batches by epochs; see the top of this file.
/// @snippet training_test.cpp data_loader
class DataLoader {
 public:
  /// Of tensors in memory, with equally many rows. Throws as Dataset; ExitCode::usage for options that do not fit, such
  /// as a last batch that does not divide over dp_size, without drop_last.
  DataLoader(std::map<std::string, Tensor, std::less<>> tensors, const DataLoaderOptions& options);
  /// Of samples that your code makes.
  DataLoader(std::shared_ptr<const SampleSet> set, const DataLoaderOptions& options);

  std::int64_t size() const { return size_; }        ///< samples of an epoch, before drop_last
  std::int64_t batches() const { return batches_; }  ///< of an epoch

  /// The batches of an epoch, for one loop over them.
  class Epoch {
   public:
    /// An input iterator.
    class Iterator {
     public:
      using iterator_category = std::input_iterator_tag;  ///< as the standard library asks
      using value_type = Batch;                           ///< as the standard library asks
      using difference_type = std::ptrdiff_t;             ///< as the standard library asks
      using pointer = const Batch*;                       ///< as the standard library asks
      using reference = const Batch&;                     ///< as the standard library asks
      Iterator(DataLoader& loader, std::int64_t left);
      reference operator*() const { return batch_; }  ///< this batch
      pointer operator->() const { return &batch_; }  ///< this batch
      /// The next batch; waits until it is ready.
      Iterator& operator++();
      void operator++(int) { ++*this; }                                      ///< the next batch
      bool operator==(std::default_sentinel_t) const { return left_ == 0; }  ///< whether the epoch is over

     private:
      DataLoader* loader_;
      std::int64_t left_;  // batches, with this one
      std::int64_t loop_;  // its number
      Batch batch_;
    };
    Epoch(DataLoader& loader, std::int64_t first, std::int64_t count) : loader_(loader), first_(first), count_(count) {}
    /// The first batch. A second call begins the epoch again, and ends an earlier loop.
    Iterator begin() const;
    std::default_sentinel_t end() const { return {}; }
    std::int64_t size() const { return count_; }  ///< batches

   private:
    DataLoader& loader_;
    std::int64_t first_, count_;
  };
  /// Epoch `number`, from 0. A loop may end early. One loop at a time: going on with another one after a new one has
  /// begun throws ExitCode::internal. The loader must outlive the loop.
  Epoch epoch(std::int64_t number) &;
  Epoch epoch(std::int64_t number) && = delete;  ///< the loader would be gone in the loop

 private:
  DataLoader(const std::shared_ptr<const Dataset>& data, const DataLoaderOptions& options);
  DataLoader(const std::shared_ptr<const SampleSource>& source, const DataLoaderOptions& options);
  DataLoader(std::shared_ptr<const DataSource> source, std::int64_t size, const DataLoaderOptions& options);

  std::int64_t size_, batches_, batch_, loops_ = 0;
  std::unique_ptr<Loader> loader_;
};

}  // namespace trireme
