// Producers, one consumer, and a queue between them that is never longer than `depth`. A producer puts its place into
// the queue before it makes the batch, so that batches come out in order.
#include "data/prefetch.h"

#include <utility>

#include "core/cores.h"
#include "core/error.h"

namespace trireme {
namespace {

/// make_batch of a source; null for none.
Loader::Source batches_of(std::shared_ptr<const DataSource> source) {
  if (source == nullptr) return {};
  return
      [source = std::move(source)](std::int64_t first, std::int64_t count) { return source->make_batch(first, count); };
}

}  // namespace

Loader::Loader(Source source, const BatchPlan& plan, std::int64_t consumed, int depth, int workers)
    : source_(std::move(source)),
      plan_(plan),
      pool_(MemoryPool::current()),
      depth_(static_cast<std::size_t>(depth)),
      consumed_(consumed),
      next_consumed_(consumed) {
  plan_.check();
  require(source_ != nullptr, "loader", "the source is null; expected a function or a DataSource that makes batches");
  require(depth >= 1 && workers >= 1 && consumed >= 0, "loader",
          "depth {}, {} workers and {} consumed samples; expected at least 1, 1 and 0", depth, workers, consumed);
  try {
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { run(); });
  } catch (...) {
    stop();
    throw;
  }
}

Loader::Loader(std::shared_ptr<const DataSource> source, const BatchPlan& plan, std::int64_t consumed, int depth,
               int workers)
    : Loader(batches_of(std::move(source)), plan, consumed, depth, workers) {}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Loader::run() {
  use_all_cores();
  MemoryPool::set_current(pool_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failed_ && items_.size() < depth_); });
    if (stop_) return;
    const std::uint64_t generation = generation_;
    const std::int64_t first = plan_.first_sample(next_consumed_, next_index_);
    const auto item = std::make_shared<Item>();
    items_.push_back(item);
    if (++next_index_ == plan_.micro_batches()) {
      next_index_ = 0;
      next_consumed_ += plan_.global_batch;
    }
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = source_(first, plan_.micro_batch);
    } catch (...) { error = std::current_exception(); }
    lock.lock();
    if (generation != generation_) continue;  // seek() came between
    item->batch = std::move(batch);
    item->error = error;
    item->ready = true;
    failed_ |= error != nullptr;
    changed_.notify_all();
  }
}

Batch Loader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !items_.empty() && items_.front()->ready; });
  if (items_.front()->error) std::rethrow_exception(items_.front()->error);  // and stays there
  Batch batch = std::move(items_.front()->batch);
  items_.pop_front();
  lock.unlock();
  changed_.notify_all();
  if (++delivered_ == plan_.micro_batches()) {
    delivered_ = 0;
    consumed_ += plan_.global_batch;
  }
  return batch;
}

void Loader::seek(std::int64_t consumed) {
  require(consumed >= 0, "loader", "cannot continue after {} samples; expected at least 0", consumed);
  {
    const std::lock_guard lock(mutex_);
    ++generation_;
    items_.clear();
    failed_ = false;
    next_consumed_ = consumed;
    next_index_ = 0;
  }
  consumed_ = consumed;
  delivered_ = 0;
  changed_.notify_all();
}

}  // namespace trireme
