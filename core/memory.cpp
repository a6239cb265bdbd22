#include "core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/control_groups.h"
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

/// Puts large blocks into pages of 2 MiB if the system grants them: weights are read row by row, each row from another
/// page, and the processor's TLB holds few pages. This is only a hint, so the result of madvise is ignored.
void* system_memory(std::size_t bytes) {
  constexpr std::size_t huge_page = 2 << 20;
  if (bytes < 2 * huge_page) return std::aligned_alloc(alignment, bytes);
  void* data = nullptr;
  if (::posix_memalign(&data, huge_page, bytes) != 0) return nullptr;  // not aligned_alloc, which needs whole pages
#if defined(MADV_HUGEPAGE)
  static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
#endif
  return data;
}

// ---- dry runs -------------------------------------------------------------------------------------------------------

constexpr std::size_t least_reserved = 64 << 10;  // bytes of a block

/// Zeros. Large blocks have no memory behind them before they are written.
void* dry_memory(std::size_t bytes) {
  if (bytes < least_reserved) return std::calloc(1, bytes);  // NOLINT(cppcoreguidelines-no-malloc)
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}
void free_dry(void* data, std::size_t bytes) {
  if (bytes < least_reserved) return std::free(data);  // NOLINT(cppcoreguidelines-no-malloc)
  static_cast<void>(::munmap(data, bytes));
}

thread_local MemoryCategory current_category = MemoryCategory::activations;

std::shared_ptr<MemoryPool>& current_pool() {
  thread_local std::shared_ptr<MemoryPool> pool = std::make_shared<MemoryPool>();
  return pool;
}

/// Advice on how to reduce the memory of a category.
std::string_view remedy(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters:
      return "split the model with tp or pp of the mesh (--mesh), shard weights (ZeroOptions::stage 3, --zero 3), or "
             "use bf16 "
             "(Build's dtype, --dtype)";
    case MemoryCategory::gradients:
      return "shard gradients (ZeroOptions::stage 2, --zero 2), or split the model with tp or pp of the mesh (--mesh)";
    case MemoryCategory::optimizer:
    case MemoryCategory::offloaded:
      return "shard the optimizer's state (ZeroOptions::stage 1, --zero 1), or split the model with tp or pp of the "
             "mesh "
             "(--mesh)";
    default:
      return "use fewer samples at a time (--micro-batch), shorter ones (--context), or Parallelism::recompute "
             "(--recompute)";
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

MemoryPool::Block::Block(std::shared_ptr<MemoryPool> pool, std::size_t bytes, MemoryCategory category,
                         std::shared_ptr<DeviceBackend> pinned_for)
    : pool_(std::move(pool)),
      pinned_for_(std::move(pinned_for)),
      data_(pool_->take(bytes, category, pinned_for_)),
      bytes_(bytes),
      category_(category) {}

MemoryPool::Block::~Block() { release(); }

void MemoryPool::Block::release() {
  if (data_ != nullptr) pool_->give(std::exchange(data_, nullptr), bytes_, category_, pinned_for_);
}

void MemoryPool::Block::acquire() {
  fill_ = nullptr;
  if (data_ == nullptr) data_ = pool_->take(bytes_, category_, pinned_for_);
}

void MemoryPool::Block::fill_on_use(std::function<void()> fill) {
  release();
  fill_ = std::move(fill);
}

void* MemoryPool::Block::contents() {
  if (data_ == nullptr && fill_) {
    const auto fill = std::exchange(fill_, nullptr);
    acquire();
    fill();
  }
  return data_;
}

void MemoryPool::Block::set_category(MemoryCategory category) {
  if (data_ != nullptr) pool_->recount(bytes_, category_, category);
  category_ = category;
}

MemoryPool::MemoryPool(std::shared_ptr<DeviceBackend> backend) : backend_(std::move(backend)) {}

MemoryPool::~MemoryPool() { release_cached(); }

std::shared_ptr<MemoryPool> MemoryPool::on(Device device) {
  if (device == Device::cpu) return shared_from_this();
  if (dry_) {
    const std::scoped_lock lock(mutex_);
    if (on_device_ == nullptr) on_device_ = dry(backed_);
    return on_device_;
  }
  std::shared_ptr<DeviceBackend> wanted = shared_backend(device);
  const std::scoped_lock lock(mutex_);
  // Another device was opened since: blocks of the earlier one keep their own pool.
  if (on_device_ == nullptr || on_device_->backend_ != wanted)
    on_device_.reset(new MemoryPool(std::move(wanted)));  // NOLINT: the constructor is private
  return on_device_;
}

std::shared_ptr<MemoryPool> MemoryPool::dry(bool backed) {
  auto pool = std::make_shared<MemoryPool>();
  pool->dry_ = true;
  pool->backed_ = backed;
  return pool;
}

const std::shared_ptr<MemoryPool>& MemoryPool::current() { return current_pool(); }

void MemoryPool::set_current(std::shared_ptr<MemoryPool> pool) { current_pool() = std::move(pool); }

void* MemoryPool::take(std::size_t bytes, MemoryCategory category, const Backend& pinned_for) {
  const std::scoped_lock lock(mutex_);
  void* const data =
      backend_ != nullptr ? backend_->allocate(std::max<std::size_t>(bytes, 1)) : from_host(bytes, pinned_for);
  if (data == nullptr) out_of_memory(bytes, category);
  add(use_[static_cast<std::size_t>(category)], static_cast<std::int64_t>(bytes));
  total_.live += static_cast<std::int64_t>(bytes);
  if (total_.live > total_.peak) note_peak();
  return data;
}

void MemoryPool::note_peak() {
  total_.peak = total_.live;
  for (std::size_t i = 0; i < at_peak_.size(); ++i) at_peak_[i] = use_[i].live;
}

void MemoryPool::recount(std::size_t bytes, MemoryCategory from, MemoryCategory to) {
  const std::scoped_lock lock(mutex_);
  add(use_[static_cast<std::size_t>(from)], -static_cast<std::int64_t>(bytes));
  add(use_[static_cast<std::size_t>(to)], static_cast<std::int64_t>(bytes));
}

/// Null if the system has no memory left.
void* MemoryPool::from_host(std::size_t bytes, const Backend& pinned_for) {
  const bool pinned = pinned_for != nullptr && !dry_;
  if (pinned && pinner_ != pinned_for) {  // another device was opened since
    release_pinned();
    pinner_ = pinned_for;
  }
  const std::size_t rounded = size_class(std::max<std::size_t>(bytes, 1));
  if (auto& blocks = (pinned ? free_pinned_ : free_)[rounded]; !blocks.empty()) {
    void* const data = blocks.back();
    blocks.pop_back();
    // A number that nobody computes is 0, not what another one left.
    if (dry_ && rounded < least_reserved) std::memset(data, 0, rounded);
    return data;
  }
  void* const data = dry_ && !backed_ ? dry_memory(rounded)
                     : pinned         ? pinned_for->allocate_pinned(rounded)
                                      : system_memory(rounded);
  if (data == nullptr) return nullptr;
  if (backed_) std::memset(data, 0, rounded);  // pages that were never written are one and the same page of zeros
  ++system_allocations_;
  if (pinned) pinned_bytes_ += static_cast<std::int64_t>(rounded);
  return data;
}

void MemoryPool::release_pinned() {
  for (auto& [bytes, blocks] : free_pinned_) {
    pinned_bytes_ -= static_cast<std::int64_t>(bytes * blocks.size());
    for (void* data : blocks) pinner_->free_pinned(data);
    blocks.clear();
  }
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
  // If the machine can never hold this one tensor, starting again would not help.
  const bool impossible = backend_ == nullptr && bytes > host_memory().bytes;
  fail(impossible ? ExitCode::usage : ExitCode::retryable, "memory",
       "out of {} memory: asked for {} bytes for {}, {} bytes in use{}{}{}{}; {}", where, bytes, name(category),
       total_.live, by_category.empty() ? "" : ": ", by_category, left,
       impossible ? fmt::format("; this machine may use {} bytes", host_memory().bytes) : "", remedy(category));
}

void MemoryPool::give(void* data, std::size_t bytes, MemoryCategory category, const Backend& pinned_for) {
  const std::scoped_lock lock(mutex_);
  const std::size_t rounded = size_class(std::max<std::size_t>(bytes, 1));
  if (backend_ != nullptr) {
    backend_->free(data);
  } else if (pinned_for == nullptr || dry_) {
    free_[rounded].push_back(data);
  } else if (pinned_for == pinner_) {
    free_pinned_[rounded].push_back(data);
  } else {
    pinned_bytes_ -= static_cast<std::int64_t>(rounded);
    pinned_for->free_pinned(data);
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

std::array<std::int64_t, memory_categories> MemoryPool::live() const {
  const std::scoped_lock lock(mutex_);
  std::array<std::int64_t, memory_categories> bytes{};
  for (std::size_t c = 0; c < bytes.size(); ++c) bytes[c] = use_[c].live;
  return bytes;
}

std::array<std::int64_t, memory_categories> MemoryPool::at_peak() const {
  const std::scoped_lock lock(mutex_);
  return at_peak_;
}

std::int64_t MemoryPool::system_allocations() const {
  const std::scoped_lock lock(mutex_);
  return system_allocations_;
}

std::int64_t MemoryPool::pinned_bytes() const {
  const std::scoped_lock lock(mutex_);
  return pinned_bytes_;
}

void MemoryPool::reset_peaks() {
  const std::scoped_lock lock(mutex_);
  for (MemoryUse& use : use_) use.peak = use.live;
  note_peak();
}

void MemoryPool::release_cached() {
  const std::scoped_lock lock(mutex_);
  for (auto& [bytes, blocks] : free_) {
    for (void* data : blocks) dry_ && !backed_ ? free_dry(data, bytes) : std::free(data);
    blocks.clear();
  }
  release_pinned();
}

MemoryScope::MemoryScope(MemoryCategory category) : previous_(std::exchange(current_category, category)) {}
MemoryScope::~MemoryScope() { current_category = previous_; }
MemoryCategory MemoryScope::category() { return current_category; }

}  // namespace trireme
