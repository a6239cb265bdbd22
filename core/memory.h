// Memory for tensors: a pool that counts live and peak bytes by category.
//
// Training asks for the same sizes every step, and every fresh page costs a page fault; a freed block is therefore kept
// and handed out again. Each rank has its own pool (ranks may be threads of one process), found through
// MemoryPool::current(); a block goes back to the pool it came from, whichever thread drops it. A rank's memory on
// another device is counted separately, by on(device). There the backend caches freed blocks, because it knows which
// ones queued work still uses.
// Read next: core/tensor.h, whose storage comes from here.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace trireme {

/// What memory is for, so that a report can say where it went.
/// `offloaded` is optimizer state that lives in host memory wherever the model computes.
enum class MemoryCategory : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  workspace,
  offloaded
};
inline constexpr int memory_categories = 7;
/// "weights", "activations", ...
std::string_view name(MemoryCategory category);

/// Bytes of one category, or of all.
struct MemoryUse {
  std::int64_t live = 0;  ///< bytes in use now
  std::int64_t peak = 0;  ///< most bytes in use at once since the last reset_peaks()
};

/// The memory of one rank, on one device: blocks that are kept for reuse, counted by category.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// What the last dim of a tensor is, if it is not simply all classes: Tensor::set_columns().
  struct Columns {
    std::int64_t width = 0;  ///< columns here; 0: nothing is known
    std::int64_t whole = 0;  ///< columns of the whole, without padding
    std::int64_t parts = 1;  ///< ranks that each have `width` columns of the whole
    bool features = false;   ///< outputs of a layer, which need not be classes: a softmax over a part may be meant

    bool split() const { return parts > 1; }               ///< whether other ranks have other columns
    bool padded() const { return width * parts > whole; }  ///< whether a rank has columns that are padding
  };

  /// The smallest and the largest of whole numbers.
  struct Extremes {
    std::int32_t low = 0, high = 0;
    std::uint64_t version = 0;  ///< of the block, when they were found
  };

  /// One allocation; returned to its pool on destruction. At least 64-byte aligned.
  class Block {
   public:
    /// `pinned_for`: takes host memory that this device reaches without staging; null: the pool's ordinary memory.
    Block(std::shared_ptr<MemoryPool> pool, std::size_t bytes, MemoryCategory category,
          std::shared_ptr<DeviceBackend> pinned_for = nullptr);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void* data() const { return data_; }  ///< null while released
    void release();                       ///< gives the memory back to the pool and loses its contents; the block stays
    void acquire();                       ///< takes memory again, with undefined contents
    /// Gives the memory back until contents() is called first; `fill` then writes them.
    void fill_on_use(std::function<void()> fill);
    /// data(), but what fill_on_use() has put off is done. By one thread at a time.
    void* contents();
    std::size_t bytes() const { return bytes_; }
    void set_category(MemoryCategory category);  ///< what it is for from here on

    /// Grows when the contents may have changed: autograd/saved_versions.h compares it between forward and backward.
    std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
    /// For contents that are those of that version again.
    void set_version(std::uint64_t version) { version_.store(version, std::memory_order_relaxed); }
    /// See Tensor::set_columns().
    void set_columns(const Columns& columns) { columns_ = columns; }
    const Columns& columns() const { return columns_; }
    /// Bounds of the ids in it, as they are now: core/ids.h.
    void set_extremes(std::int32_t low, std::int32_t high) { extremes_ = Extremes{low, high, version()}; }
    /// What set_extremes() said, unless the contents may have changed since.
    std::optional<Extremes> extremes() const {
      return extremes_ && extremes_->version == version() ? extremes_ : std::nullopt;
    }

   private:
    std::shared_ptr<MemoryPool> pool_;
    std::shared_ptr<DeviceBackend> pinned_for_;
    void* data_;
    std::size_t bytes_;
    MemoryCategory category_;
    std::atomic<std::uint64_t> version_{0};
    Columns columns_;
    std::optional<Extremes> extremes_;
    std::function<void()> fill_;  ///< not yet called
  };

  MemoryPool() = default;  ///< of host memory
  /// For a dry run (core/dry_run.h): large blocks are addresses without memory behind them, on all devices; `backed`:
  /// they have memory, for kernels that are measured.
  static std::shared_ptr<MemoryPool> dry(bool backed = false);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The pool of the calling thread's rank; made on first use.
  static const std::shared_ptr<MemoryPool>& current();
  /// Lets a helper thread (prefetch, communication) allocate from its rank's pool.
  static void set_current(std::shared_ptr<MemoryPool> pool);

  /// This rank's pool of a device's memory: itself for the host. Throws when the device has no backend.
  std::shared_ptr<MemoryPool> on(Device device);

  MemoryUse use(MemoryCategory category) const;              ///< bytes of one category
  MemoryUse total() const;                                   ///< bytes of all categories
  std::array<std::int64_t, memory_categories> live() const;  ///< bytes in use now, by category
  /// Bytes of each category at the moment when the total was largest: they add up to total().peak.
  std::array<std::int64_t, memory_categories> at_peak() const;
  std::int64_t system_allocations() const;  ///< how often the pool had to ask the system: constant in a steady state
  std::int64_t pinned_bytes() const;        ///< pinned host memory, in use or kept
  void reset_peaks();                       ///< sets each peak to what is in use now
  void release_cached();                    ///< gives unused blocks back to the system

 private:
  explicit MemoryPool(std::shared_ptr<DeviceBackend> backend);
  using Backend = std::shared_ptr<DeviceBackend>;
  void* take(std::size_t bytes, MemoryCategory category, const Backend& pinned_for);
  void give(void* data, std::size_t bytes, MemoryCategory category, const Backend& pinned_for);
  void recount(std::size_t bytes, MemoryCategory from, MemoryCategory to);
  void note_peak();
  void* from_host(std::size_t bytes, const Backend& pinned_for);
  void release_pinned();
  [[noreturn]] void out_of_memory(std::size_t bytes, MemoryCategory category) const;

  std::shared_ptr<DeviceBackend> backend_;  // null: host memory
  bool dry_ = false, backed_ = false;
  std::shared_ptr<MemoryPool> on_device_;  // of the same rank

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;         // by size class
  std::shared_ptr<DeviceBackend> pinner_;                  // whose pinned memory is kept
  std::map<std::size_t, std::vector<void*>> free_pinned_;  // by size class
  std::int64_t pinned_bytes_ = 0;
  std::array<MemoryUse, memory_categories> use_{};
  MemoryUse total_{};
  std::array<std::int64_t, memory_categories> at_peak_{};
  std::int64_t system_allocations_ = 0;
};

/// While it lives, tensors made by this thread are counted under `category` (activations otherwise).
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  static MemoryCategory category();  ///< of the calling thread

 private:
  MemoryCategory previous_;
};

}  // namespace trireme
