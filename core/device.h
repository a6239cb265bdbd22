// Devices: where tensors live, and the interface that a device other than the host implements.
//
// The host needs no backend: its memory comes from the system, its kernels are in core/cpu. Every other device is
// reached through one DeviceBackend, which a program sets before its ranks start (cuda/runtime/open.h does it for
// GPUs). There is no fallback: without a backend, using the device is an error.
// Read next: core/memory.h, core/tensor.h, cuda/runtime/open.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme {

struct KernelTable;  // core/kernels.h

/// Where a tensor is and its operations run.
enum class Device : std::uint8_t { cpu, cuda };
inline constexpr int device_count = 2;
std::string_view name(Device device);  ///< as --device spells it

/// One kind of device. Work is queued in program order. A block may therefore be freed while queued kernels still use
/// it: the next user's work runs after theirs. upload returns when the host's bytes have been read, download when they
/// have been written. Members may be called from any rank; all ranks share the queue. Sizes are in bytes. A backend
/// counts copies, allocations and waits in device_work().
class DeviceBackend {
 public:
  DeviceBackend() = default;
  virtual ~DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  virtual std::string description() const = 0;    ///< "NVIDIA H200, sm_90, 139.8 GiB"
  virtual void* allocate(std::size_t bytes) = 0;  ///< 256-byte aligned; null when there is not enough memory
  virtual void free(void* data) noexcept = 0;     ///< takes effect after the work queued so far
  virtual std::int64_t free_memory() const = 0;   ///< bytes that allocate could still hand out
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;    ///< from host memory
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;  ///< to host memory, after queued work
  /// A copy to the host that is under way. Dropping it waits.
  class Download {
   public:
    Download() = default;
    virtual ~Download() = default;
    Download(const Download&) = delete;
    Download& operator=(const Download&) = delete;
    virtual void wait() = 0;  ///< for this copy, not for work that was queued after it
  };
  /// As download, but returns at once: `to` has the bytes after wait(). It must be pinned memory, and live until then.
  virtual std::unique_ptr<Download> start_download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes) = 0;  ///< the two must not overlap
  virtual void set(void* to, unsigned char value, std::size_t bytes) = 0;          ///< every byte
  /// Host memory that upload and download reach without staging, 64-byte aligned; null when there is not enough.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* data) noexcept = 0;  ///< gives back what allocate_pinned() returned
  virtual void synchronize() = 0;                     ///< waits for all queued work; throws its errors
  virtual const KernelTable& kernels() const = 0;     ///< what computes on this device
};

/// The backend of a device other than the host. Throws ExitCode::usage when there is none.
DeviceBackend& backend(Device device);
bool is_available(Device device);  ///< true for the host, and for a device whose backend was set
/// For the whole process: call it before ranks start. Blocks keep the backend they came from alive.
void set_backend(Device device, std::shared_ptr<DeviceBackend> backend);
/// The same, to keep it alive.
std::shared_ptr<DeviceBackend> shared_backend(Device device);

}  // namespace trireme
