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
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
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
std::string_view name(MemoryCategory category);

struct MemoryUse {
  std::int64_t live = 0;  ///< bytes in use now
  std::int64_t peak = 0;  ///< most bytes in use at once since the last reset_peaks()
};

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
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
    std::size_t bytes() const { return bytes_; }

   private:
    std::shared_ptr<MemoryPool> pool_;
    std::shared_ptr<DeviceBackend> pinned_for_;
    void* data_;
    std::size_t bytes_;
    MemoryCategory category_;
  };

  MemoryPool() = default;  ///< of host memory
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// The pool of the calling thread's rank; made on first use.
  static const std::shared_ptr<MemoryPool>& current();
  /// Lets a helper thread (prefetch, communication) allocate from its rank's pool.
  static void set_current(std::shared_ptr<MemoryPool> pool);

  /// This rank's pool of a device's memory: itself for the host. Throws when the device has no backend.
  std::shared_ptr<MemoryPool> on(Device device);

  MemoryUse use(MemoryCategory category) const;
  MemoryUse total() const;
  std::int64_t system_allocations() const;  ///< how often the pool had to ask the system: constant in a steady state
  std::int64_t pinned_bytes() const;        ///< pinned host memory, in use or kept
  void reset_peaks();
  void release_cached();  ///< gives unused blocks back to the system

 private:
  explicit MemoryPool(std::shared_ptr<DeviceBackend> backend);
  using Backend = std::shared_ptr<DeviceBackend>;
  void* take(std::size_t bytes, MemoryCategory category, const Backend& pinned_for);
  void give(void* data, std::size_t bytes, MemoryCategory category, const Backend& pinned_for);
  void* from_host(std::size_t bytes, const Backend& pinned_for);
  void release_pinned();
  [[noreturn]] void out_of_memory(std::size_t bytes, MemoryCategory category) const;

  std::shared_ptr<DeviceBackend> backend_;  // null: host memory
  std::shared_ptr<MemoryPool> on_device_;   // of the same rank

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;         // by size class
  std::shared_ptr<DeviceBackend> pinner_;                  // whose pinned memory is kept
  std::map<std::size_t, std::vector<void*>> free_pinned_;  // by size class
  std::int64_t pinned_bytes_ = 0;
  std::array<MemoryUse, memory_categories> use_{};
  MemoryUse total_{};
  std::int64_t system_allocations_ = 0;
};

/// While it lives, tensors made by this thread are counted under `category` (activations otherwise).
class MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  static MemoryCategory category();

 private:
  MemoryCategory previous_;
};

}  // namespace trireme
