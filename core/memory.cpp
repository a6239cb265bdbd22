#include "core/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>
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

MemoryPool::MemoryPool(std::shared_ptr<DeviceBackend> backend) : backend_(std::move(backend)) {}

MemoryPool::~MemoryPool() { release_cached(); }

std::shared_ptr<MemoryPool> MemoryPool::on(Device device) {
  if (device == Device::cpu) return shared_from_this();
  std::shared_ptr<DeviceBackend> wanted = shared_backend(device);
  const std::scoped_lock lock(mutex_);
  // Another device was opened since: blocks of the earlier one keep their own pool.
  if (on_device_ == nullptr || on_device_->backend_ != wanted)
    on_device_.reset(new MemoryPool(std::move(wanted)));  // NOLINT: the constructor is private
  return on_device_;
}

const std::shared_ptr<MemoryPool>& MemoryPool::current() { return current_pool(); }

void MemoryPool::set_current(std::shared_ptr<MemoryPool> pool) { current_pool() = std::move(pool); }

void* MemoryPool::take(std::size_t bytes, MemoryCategory category) {
  const std::scoped_lock lock(mutex_);
  void* const data = backend_ != nullptr ? backend_->allocate(std::max<std::size_t>(bytes, 1)) : from_host(bytes);
  if (data == nullptr) out_of_memory(bytes, category);
  add(use_[static_cast<std::size_t>(category)], static_cast<std::int64_t>(bytes));
  add(total_, static_cast<std::int64_t>(bytes));
  return data;
}

/// Null when the system has none.
void* MemoryPool::from_host(std::size_t bytes) {
  const std::size_t rounded = size_class(std::max<std::size_t>(bytes, 1));
  if (auto& blocks = free_[rounded]; !blocks.empty()) {
    void* const data = blocks.back();
    blocks.pop_back();
    return data;
  }
  void* const data = std::aligned_alloc(alignment, rounded);
  if (data != nullptr) ++system_allocations_;
  return data;
}

void MemoryPool::out_of_memory(std::size_t bytes, MemoryCategory category) const {
  std::string by_category;
  for (int i = 0; i < memory_categories; ++i) {
    const std::int64_t live = use_[static_cast<std::size_t>(i)].live;
    if (live > 0)
      by_category +=
          fmt::format("{}{} {}", by_category.empty() ? "" : ", ", name(static_cast<MemoryCategory>(i)), live);
  }
  const std::string where = backend_ == nullptr ? "host" : "device";
  const std::string left =
      backend_ == nullptr ? ""
                          : fmt::format("; {} has {} bytes left", backend_->description(), backend_->free_memory());
  fail(ExitCode::retryable, "memory", "out of {} memory: asked for {} bytes for {}, {} bytes in use{}{}{}; {}", where,
       bytes, name(category), total_.live, by_category.empty() ? "" : ": ", by_category, left, remedy(category));
}

void MemoryPool::give(void* data, std::size_t bytes, MemoryCategory category) {
  const std::scoped_lock lock(mutex_);
  if (backend_ != nullptr) {
    backend_->free(data);
  } else {
    free_[size_class(std::max<std::size_t>(bytes, 1))].push_back(data);
  }
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
