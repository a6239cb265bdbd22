// One producer, one consumer, and a queue between them that is never longer than `depth`.
#include "data/prefetch.h"

#include <chrono>
#include <utility>

#include "core/cores.h"
#include "core/error.h"

namespace trireme {

Loader::Loader(Source source, const BatchPlan& plan, std::int64_t consumed, int depth)
    : source_(std::move(source)),
      plan_(plan),
      pool_(MemoryPool::current()),
      depth_(static_cast<std::size_t>(depth)),
      consumed_(consumed),
      next_consumed_(consumed) {
  plan_.check();
  require(depth >= 1 && consumed >= 0, "loader", "depth {} and {} consumed samples; expected at least 1 and 0", depth,
          consumed);
  thread_ = std::thread([this] { run(); });
}

Loader::Loader(std::shared_ptr<const DataSource> source, const BatchPlan& plan, std::int64_t consumed, int depth)
    : Loader([source = std::move(source)](std::int64_t first,
                                          std::int64_t count) { return source->make_batch(first, count); },
             plan, consumed, depth) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::run() {
  use_all_cores();
  MemoryPool::set_current(pool_);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (!failed_ && ready_.size() < depth_); });
    if (stop_) return;
    const std::uint64_t generation = generation_;
    const std::int64_t first = plan_.first_sample(next_consumed_, next_index_);
    lock.unlock();
    Item item;
    try {
      item.batch = source_(first, plan_.micro_batch);
    } catch (...) { item.error = std::current_exception(); }
    lock.lock();
    if (generation != generation_) continue;  // seek() came between
    failed_ = item.error != nullptr;
    ready_.push_back(std::move(item));
    if (++next_index_ == plan_.micro_batches()) {
      next_index_ = 0;
      next_consumed_ += plan_.global_batch;
    }
    changed_.notify_all();
  }
}

Batch Loader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (ready_.front().error) std::rethrow_exception(ready_.front().error);  // and stays there
  Batch batch = std::move(ready_.front().batch);
  ready_.pop_front();
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
    ready_.clear();
    failed_ = false;
    next_consumed_ = consumed;
    next_index_ = 0;
  }
  consumed_ = consumed;
  delivered_ = 0;
  changed_.notify_all();
}

}  // namespace trireme
