// Loader: the micro-batches of one data-parallel rank in order, prepared ahead on threads, so that reading (page faults
// on mapped shards, files, decoding) overlaps computing. It delivers the batches of DataSource::make_batch; only the
// waiting time differs, whatever the number of threads.
// Read next: data/sampler.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "data/sampler.h"

namespace trireme {

/// The micro-batches of one dp rank in order, prepared ahead on threads.
/// @snippet training_test.cpp dataset
class Loader {
 public:
  /// Makes the batch of samples first .. first + count - 1: normally DataSource::make_batch.
  using Source = std::function<Batch(std::int64_t first, std::int64_t count)>;

  /// Starts at the step that begins after `consumed` samples, with up to `depth` micro-batches prepared ahead by
  /// `workers` threads, each of which makes whole micro-batches: more threads than `depth` have no effect. Batches are
  /// allocated from the calling thread's memory pool.
  Loader(Source source, const BatchPlan& plan, std::int64_t consumed = 0, int depth = 2, int workers = 1);
  Loader(std::shared_ptr<const DataSource> source, const BatchPlan& plan, std::int64_t consumed = 0, int depth = 2,
         int workers = 1);
  ~Loader();  ///< stops the threads and waits for them
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next micro-batch of this rank: plan.micro_batches() of them per step. An exception of the source is thrown
  /// here, in the place of the batch it belongs to, and again at every later call until seek().
  Batch next();

  /// Samples consumed by whole steps: what a checkpoint stores. In the middle of a step, the value at its beginning.
  std::int64_t consumed() const { return consumed_; }
  /// Continues with the step that begins after `consumed` samples; prepared batches are dropped.
  void seek(std::int64_t consumed);

 private:
  struct Item {
    Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  void run();
  void stop();

  Source source_;
  BatchPlan plan_;
  std::shared_ptr<MemoryPool> pool_;
  std::size_t depth_;

  // Used by the consumer only, in next() and seek().
  std::int64_t consumed_, delivered_ = 0;  // delivered: micro-batches of the current step

  // Shared, under the mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Item>> items_;      // in order: ready, or begun by a thread
  std::int64_t next_consumed_, next_index_ = 0;  // what is prepared next
  std::uint64_t generation_ = 0;                 // raised by seek(): a batch begun before it is dropped
  bool failed_ = false, stop_ = false;

  std::vector<std::thread> threads_;  // last: they start when everything above exists
};

}  // namespace trireme
