#include "data/data_loader.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace trireme {
namespace {

/// `size` samples in batches of `o.batch`: the number of batches.
std::int64_t checked_batches(std::int64_t size, const DataLoaderOptions& o) {
  if (o.batch < 1 || o.dp_size < 1 || o.dp_rank < 0 || o.dp_rank >= o.dp_size || o.batch % o.dp_size != 0)
    fail(ExitCode::usage, "data_loader",
         "a batch of {} for rank {} of {}; expected a multiple of the number of ranks, and a rank below it; set "
         "DataLoaderOptions::batch, dp_rank and dp_size",
         o.batch, o.dp_rank, o.dp_size);
  const std::int64_t rest = size % o.batch;
  if (!o.drop_last && rest % o.dp_size != 0)
    fail(
        ExitCode::usage, "data_loader",
        "the last batch of an epoch of {} samples has {}, which do not divide over {} ranks; expected equal parts; set "
        "DataLoaderOptions::drop_last, or another batch",
        size, rest, o.dp_size);
  const std::int64_t batches = size / o.batch + (rest > 0 && !o.drop_last ? 1 : 0);
  if (batches == 0)
    fail(ExitCode::usage, "data_loader",
         "an epoch of {} samples has no whole batch of {}; expected at least one; set DataLoaderOptions::batch, or "
         "leave "
         "drop_last out",
         size, o.batch);
  return batches;
}

}  // namespace

DataLoader::DataLoader(std::map<std::string, Tensor, std::less<>> tensors, const DataLoaderOptions& options)
    : DataLoader(std::make_shared<const Dataset>(std::move(tensors), options.seed, options.shuffle), options) {}

DataLoader::DataLoader(std::shared_ptr<const SampleSet> set, const DataLoaderOptions& options)
    : DataLoader(std::make_shared<const SampleSource>(std::move(set), options.seed, options.shuffle), options) {}

DataLoader::DataLoader(const std::shared_ptr<const Dataset>& data, const DataLoaderOptions& options)
    : DataLoader(data, data->rows(), options) {}

DataLoader::DataLoader(const std::shared_ptr<const SampleSource>& source, const DataLoaderOptions& options)
    : DataLoader(source, source->size(), options) {}

// The loader below counts places: each batch of an epoch has as many, so that a last, shorter batch has places without
// samples. Place p is in batch p / batch of all epochs.
DataLoader::DataLoader(std::shared_ptr<const DataSource> source, std::int64_t size, const DataLoaderOptions& o)
    : size_(size), batches_(checked_batches(size, o)), batch_(o.batch) {
  const auto make = [source = std::move(source), size, batches = batches_, o](std::int64_t place, std::int64_t) {
    const std::int64_t number = place / o.batch, first = number % batches * o.batch;  // in its epoch
    const std::int64_t share = std::min(o.batch, size - first) / o.dp_size;
    return source->make_batch(number / batches * size + first + o.dp_rank * share, share);
  };
  const BatchPlan plan{
      .global_batch = o.batch, .micro_batch = o.batch / o.dp_size, .dp_rank = o.dp_rank, .dp_size = o.dp_size};
  loader_ = std::make_unique<Loader>(make, plan, 0, o.depth, o.workers);
}

DataLoader::Epoch DataLoader::epoch(std::int64_t number) & {
  require(number >= 0, "data_loader", "epoch {}; expected a number from 0", number);
  return {*this, number * batches_ * batch_, batches_};
}

DataLoader::Epoch::Iterator DataLoader::Epoch::begin() const {
  if (loader_.loader_->consumed() != first_) loader_.loader_->seek(first_);
  ++loader_.loops_;
  return {loader_, count_};
}

DataLoader::Epoch::Iterator::Iterator(DataLoader& loader, std::int64_t left)
    : loader_(&loader), left_(left), loop_(loader.loops_), batch_(loader.loader_->next()) {}

DataLoader::Epoch::Iterator& DataLoader::Epoch::Iterator::operator++() {
  require(loop_ == loader_->loops_, "data_loader",
          "a loop over an epoch goes on after another one has begun; expected one loop at a time; make a second "
          "DataLoader, or end the first loop");
  if (--left_ > 0) batch_ = loader_->loader_->next();
  return *this;
}

}  // namespace trireme
