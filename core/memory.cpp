#include "core/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "core/error.h"

namespace trireme {
namespace {

constexpr std::size_t alignment = 64;

// Four classes per power of two: at most 25% of a block is slack, and near sizes share blocks.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= 256) return (bytes + alignment - 1) / alignment * alignment;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

thread_local MemoryCategory current_category = MemoryCategory::activations;

std::shared_ptr<MemoryPool>& current_pool() {
  thread_local std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>();
  return pool;
}

/// What makes memory of a category smaller.
std::string_view remedy(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters:
      return "split the model with tp or pp in --mesh, share weights with --zero 3, or use --dtype bf16";
    case MemoryCategory::gradients:
      return "share gradients with --zero 2, or split the model with tp or pp in --mesh";
    case MemoryCategory::optimizer:
    case MemoryCategory::offloaded:
      return "share the optimizer's state with --zero 1, or split the model with tp or pp in --mesh";
    default:
      return "lower --micro-batch or --context, or raise --recompute";
  }
}

void add(MemoryUse& use, std::int64_t bytes) {
  use.live += bytes;
  use.peak = std::max(use.peak, use.live);
}

}  // namespace

std::string_view name(MemoryCategory category) {
  constexpr std::array<std::string_view, memory_categories> names = {
      "parameters", "gradients", "optimizer", "activations", "communication", "workspace", "offloaded optimizer state"};
  return names[static_cast<std::size_t>(category)];
}

MemoryPool::Block::Block(std::shared_ptr<MemoryPool> pool, std::size_t bytes, MemoryCategory category)
    : pool_(std::move(pool)), data_(pool_->take(bytes, category)), bytes_(bytes), category_(category) {}

MemoryPool::Block::~Block() { release(); }

void MemoryPool::Block::release() {
  if (data_ != nullptr) pool_->give(std::exchange(data_, nullptr), bytes_, category_);
}

void MemoryPool::Block::acquire() {
  if (data_ == nullptr) data_ = pool_->take(bytes_, category_);
}

MemoryPool::~MemoryPool() { release_cached(); }

const std::shared_ptr<MemoryPool>& MemoryPool::current() { return current_pool(); }

void MemoryPool::set_current(std::shared_ptr<MemoryPool> pool) { current_pool() = std::move(pool); }

void* MemoryPool::take(std::size_t bytes, MemoryCategory category) {
  const std::size_t rounded = size_class(std::max<std::size_t>(bytes, 1));
  const std::scoped_lock lock(mutex_);
  void* data = nullptr;
  if (auto& blocks = free_[rounded]; !blocks.empty()) {
    data = blocks.back();
    blocks.pop_back();
  } else {
    data = std::aligned_alloc(alignment, rounded);
    if (data == nullptr) {
      fail(ExitCode::retryable, "memory", "out of host memory: asked for {} bytes for {}, {} bytes in use; {}", bytes,
           name(category), total_.live, remedy(category));
    }
    ++system_allocations_;
  }
  add(use_[static_cast<std::size_t>(category)], static_cast<std::int64_t>(bytes));
  add(total_, static_cast<std::int64_t>(bytes));
  return data;
}

void MemoryPool::give(void* data, std::size_t bytes, MemoryCategory category) {
  const std::scoped_lock lock(mutex_);
  free_[size_class(std::max<std::size_t>(bytes, 1))].push_back(data);
  add(use_[static_cast<std::size_t>(category)], -static_cast<std::int64_t>(bytes));
  add(total_, -static_cast<std::int64_t>(bytes));
}

MemoryUse MemoryPool::use(MemoryCategory category) const {
  const std::scoped_lock lock(mutex_);
  return use_[static_cast<std::size_t>(category)];
}

MemoryUse MemoryPool::total() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

std::int64_t MemoryPool::system_allocations() const {
  const std::scoped_lock lock(mutex_);
  return system_allocations_;
}

void MemoryPool::reset_peaks() {
  const std::scoped_lock lock(mutex_);
  for (MemoryUse& use : use_) use.peak = use.live;
  total_.peak = total_.live;
}

void MemoryPool::release_cached() {
  const std::scoped_lock lock(mutex_);
  for (auto& [bytes, blocks] : free_) {
    for (void* data : blocks) std::free(data);
    blocks.clear();
  }
}

MemoryScope::MemoryScope(MemoryCategory category) : previous_(std::exchange(current_category, category)) {}
MemoryScope::~MemoryScope() { current_category = previous_; }
MemoryCategory MemoryScope::category() { return current_category; }

}  // namespace trireme
