// cuda/runtime/open.h, stream.h and emulated.h without a GPU. All calls are synchronous.
#include "cuda/runtime/emulated.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/device_work.h"
#include "core/error.h"
#include "cuda/runtime/open.h"
#include "cuda/runtime/stream.h"
#include "cuda/runtime/uploads.h"
#include "cuda/table.h"

namespace trireme::cuda {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc's

/// Stricter than a GPU: the bytes arrive in wait(), and before that are NaN.
class EmulatedDownload : public DeviceBackend::Download {
 public:
  EmulatedDownload(void* to, const void* from, std::size_t bytes)
      : to_(to), bytes_(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes) {
    std::memset(to, 0xff, bytes);
  }
  ~EmulatedDownload() override { EmulatedDownload::wait(); }
  void wait() override {
    if (to_ == nullptr) return;
    ++device_work().waits;
    std::memcpy(to_, bytes_.data(), bytes_.size());
    to_ = nullptr;
  }

 private:
  void* to_;  // null: arrived
  std::vector<std::byte> bytes_;
};

class EmulatedDevice : public DeviceBackend {
 public:
  explicit EmulatedDevice(std::size_t memory) : memory_(memory) {}
  ~EmulatedDevice() override {
    for (const auto& [data, bytes] : blocks_) std::free(data);
  }

  std::string description() const override { return "emulated GPU"; }
  void* allocate(std::size_t bytes) override {
    const std::scoped_lock lock(mutex_);
    ++device_work().allocations;
    if (bytes > memory_ - used_) return nullptr;
    void* const data = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (data == nullptr) return nullptr;
    std::memset(data, 0xff, bytes);  // NaN in every floating dtype
    blocks_.emplace(static_cast<std::byte*>(data), bytes);
    used_ += bytes;
    return data;
  }
  void free(void* data) noexcept override {
    const std::scoped_lock lock(mutex_);
    const auto block = blocks_.find(static_cast<std::byte*>(data));
    used_ -= block->second;
    blocks_.erase(block);
    std::free(data);
  }
  std::int64_t free_memory() const override {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::int64_t>(memory_ - used_);
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    require_inside("upload", to, bytes);
    ++device_work().copies;
    if (bytes > kLargestQueuedUpload) ++device_work().waits;
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    require_inside("download", from, bytes);
    ++device_work().copies;
    ++device_work().waits;
    std::memcpy(to, from, bytes);
  }
  std::unique_ptr<Download> start_download(void* to, const void* from, std::size_t bytes) override {
    require_inside("start_download", from, bytes);
    ++device_work().copies;
    return std::make_unique<EmulatedDownload>(to, from, bytes);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    require_inside("copy_on_device", to, bytes);
    require_inside("copy_on_device", from, bytes);
    ++device_work().copies;
    std::memcpy(to, from, bytes);
  }
  void set(void* to, unsigned char value, std::size_t bytes) override {
    require_inside("set", to, bytes);
    ++device_work().copies;
    std::memset(to, value, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override {
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void free_pinned(void* data) noexcept override { std::free(data); }
  void synchronize() override { ++device_work().waits; }
  const KernelTable& kernels() const override { return kernel_table(); }

 private:
  void require_inside(const char* what, const void* data, std::size_t bytes) const {
    const std::scoped_lock lock(mutex_);
    const auto* const first = static_cast<const std::byte*>(data);
    auto block = blocks_.upper_bound(const_cast<std::byte*>(first));
    const bool found = block != blocks_.begin() && first <= (--block)->first + block->second;
    require(found, what, "{} is not an address of device memory; expected one in a live block", fmt::ptr(data));
    const auto offset = static_cast<std::size_t>(first - block->first);
    require(bytes <= block->second - offset, what, "{} bytes at {} of a block of {} bytes of device memory", bytes,
            offset, block->second);
  }

  const std::size_t memory_;
  mutable std::mutex mutex_;
  std::map<std::byte*, std::size_t> blocks_;
  std::size_t used_ = 0;
};

}  // namespace

ScopedEmulatedDevice::ScopedEmulatedDevice(std::size_t memory)
    : previous_(is_available(Device::cuda) ? shared_backend(Device::cuda) : nullptr) {
  set_backend(Device::cuda, std::make_shared<EmulatedDevice>(memory));
}
ScopedEmulatedDevice::~ScopedEmulatedDevice() { set_backend(Device::cuda, previous_); }

FoundDevices find_devices() { return {{{"emulated GPU", kOldestMajor, 0, 1, std::int64_t{1} << 30}}, ""}; }

void open_device(int index) {
  if (index != 0) fail(ExitCode::usage, "device", "there is no GPU {}; expected 0, the emulated one", index);
  set_backend(Device::cuda, std::make_shared<EmulatedDevice>(std::size_t{1} << 30));
}

void* current_stream() { return nullptr; }

Event::Event() = default;
Event::~Event() = default;
void Event::record(void*) {}
void Event::synchronize() const {}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : data_(std::malloc(bytes > 0 ? bytes : 1)), bytes_(bytes) {
  if (data_ == nullptr) fail(ExitCode::retryable, "pinned memory", "the host has no {} bytes left", bytes);
}
PinnedBuffer::~PinnedBuffer() { std::free(data_); }

}  // namespace trireme::cuda
