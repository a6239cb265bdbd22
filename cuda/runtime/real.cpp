// Implements cuda/runtime/open.h and stream.h with the CUDA runtime API.
//
// Memory comes from a pool of the driver (cudaMallocAsync) that keeps freed memory. Allocation and release are ordered
// in the stream, so neither waits for the GPU, and a steady training step needs no memory from the system.
// (CUDA C++ Programming Guide, "Stream Ordered Memory Allocator".) Read next: cuda/runtime/check.h.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

#include "core/device.h"
#include "core/device_work.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/connections.h"
#include "cuda/runtime/open.h"
#include "cuda/runtime/stream.h"
#include "cuda/runtime/uploads.h"
#include "cuda/table.h"

namespace trireme::cuda {
namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

/// Small uploads (token ids, positions, offsets), which are queued: they go through pinned memory, in as many pieces as
/// can be under way. The host waits for the oldest piece only if it is that far ahead of the GPU.
class Uploads {
 public:
  /// False if there are too many bytes.
  bool take(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    if (bytes > kLargestQueuedUpload) return false;
    const std::scoped_lock lock(mutex_);
    for (std::size_t done = 0; done < bytes; done += kUploadPiece)
      copy_piece(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done,
                 std::min(kUploadPiece, bytes - done), stream);
    return true;
  }

 private:
  struct Piece {
    PinnedBuffer memory{kUploadPiece};
    Event copied;
  };
  void copy_piece(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    Piece& piece = *pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    piece.copied.synchronize();  // the last copy from this piece, long ago
    std::memcpy(piece.memory.data(), from, bytes);
    TRIREME_CUDA(cudaMemcpyAsync(to, piece.memory.data(), bytes, cudaMemcpyHostToDevice, stream), "{} bytes", bytes);
    piece.copied.record(stream);
  }

  std::mutex mutex_;
  std::array<std::unique_ptr<Piece>, kUploadPieces> pieces_ = [] {
    std::array<std::unique_ptr<Piece>, kUploadPieces> all;
    for (auto& piece : all) piece = std::make_unique<Piece>();
    return all;
  }();
  std::size_t next_ = 0;
};

class GpuDownload : public DeviceBackend::Download {
 public:
  explicit GpuDownload(cudaStream_t stream) { copied_.record(stream); }
  ~GpuDownload() override { cudaEventSynchronize(event_of(copied_.handle())); }  // an error: the next call reports it
  void wait() override { copied_.synchronize(); }

 private:
  Event copied_;
};

class Gpu : public DeviceBackend {
 public:
  Gpu(int index, DeviceInfo info) : index_(index), info_(std::move(info)) {
    use();
    stream_count.add();
    TRIREME_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;  // ordinary device memory, in the driver's terms
    properties.location = {cudaMemLocationTypeDevice, {index}};
    TRIREME_CUDA(cudaMemPoolCreate(&pool_, &properties), "device {}", index);
    std::uint64_t keep = std::numeric_limits<std::uint64_t>::max();
    TRIREME_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
    uploads_ = std::make_unique<Uploads>();
  }
  ~Gpu() override {
    cudaSetDevice(index_);  // errors ignored: at program exit the driver may be gone
    cudaStreamSynchronize(stream_);
    uploads_.reset();
    cudaMemPoolDestroy(pool_);
    cudaStreamDestroy(stream_);
    stream_count.remove();
  }

  /// Makes this GPU the calling thread's: CUDA keeps that per thread, and ranks are threads.
  void use() const { TRIREME_CUDA(cudaSetDevice(index_), "device {}", index_); }
  cudaStream_t stream() const { return stream_; }

  std::string description() const override { return to_string(info_); }
  void* allocate(std::size_t bytes) override {
    use();
    ++device_work().allocations;
    void* data = nullptr;
    cudaError_t error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
    if (error == cudaErrorMemoryAllocation) {  // freed but fragmented memory may be usable after a trim
      cudaGetLastError();
      synchronize();
      TRIREME_CUDA(cudaMemPoolTrimTo(pool_, 0));
      error = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;  // the caller reports what uses the memory
    }
    TRIREME_CUDA(error, "cudaMallocFromPoolAsync of {} bytes", bytes);
    return data;
  }
  void free(void* data) noexcept override {
    cudaSetDevice(index_);
    cudaFreeAsync(data, stream_);  // an error here is an earlier kernel's and sticky: the next call reports it
  }
  std::int64_t free_memory() const override {
    use();
    std::size_t left = 0, total = 0;
    TRIREME_CUDA(cudaMemGetInfo(&left, &total));
    std::uint64_t reserved = 0, used = 0;  // by the pool, which can reuse what it keeps
    TRIREME_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
    TRIREME_CUDA(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    return static_cast<std::int64_t>(left + reserved - used);
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    use();
    if (uploads_->take(to, from, bytes, stream_)) {
      ++device_work().copies;
      return;
    }
    copy(to, from, bytes, cudaMemcpyHostToDevice);
    synchronize();  // the caller may change `from` now
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  std::unique_ptr<Download> start_download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
    return std::make_unique<GpuDownload>(stream_);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void set(void* to, unsigned char value, std::size_t bytes) override {
    use();
    ++device_work().copies;
    TRIREME_CUDA(cudaMemsetAsync(to, value, bytes, stream_), "{} bytes", bytes);
  }
  void* allocate_pinned(std::size_t bytes) override {
    use();
    void* data = nullptr;
    if (cudaHostAlloc(&data, bytes, cudaHostAllocDefault) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
  }
  void free_pinned(void* data) noexcept override {
    cudaSetDevice(index_);
    cudaFreeHost(data);
  }
  void synchronize() override {
    use();
    ++device_work().waits;
    TRIREME_CUDA(cudaStreamSynchronize(stream_));
  }
  const KernelTable& kernels() const override { return kernel_table(); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    use();
    ++device_work().copies;
    TRIREME_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream_), "{} bytes", bytes);
  }

  int index_;
  DeviceInfo info_;
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  std::unique_ptr<Uploads> uploads_;  // made once the device is the thread's
};

std::string why_none(cudaError_t error) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    return "no NVIDIA driver was found (libcuda.so.1 could not be loaded); expected one for CUDA " +
           fmt::format("{}.{}; install it, and see that nvidia-smi lists a GPU", runtime / 1000, runtime % 1000 / 10);
  if (error == cudaErrorInsufficientDriver)
    return fmt::format(
        "the driver supports CUDA up to {}.{}, this program needs {}.{}; expected a newer driver; update it",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  return fmt::format(
      "the driver shows no GPU ({}); expected at least one; see what nvidia-smi lists, and whether "
      "CUDA_VISIBLE_DEVICES "
      "hides it",
      error == cudaSuccess ? "0 devices" : cudaGetErrorString(error));
}

}  // namespace

FoundDevices find_devices() {
  int count = 0;
  // Both before the first call of CUDA. Loading a kernel at its first launch may wait for everything on the GPU.
  // Transfers between ranks wait there for other ranks, which may in turn wait for this rank: a deadlock.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ask_for_connections();
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return {{}, why_none(error)};
  }
  FoundDevices found;
  bool usable = false;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    TRIREME_CUDA(cudaGetDeviceProperties(&p, i), "device {}", i);
    found.devices.push_back(
        {p.name, p.major, p.minor, p.multiProcessorCount, static_cast<std::int64_t>(p.totalGlobalMem)});
    usable = usable || p.major >= kOldestMajor;
  }
  if (!usable)
    found.problem =
        fmt::format("{} is too old; expected sm_{}0 or later, for the kernels' instructions; use a newer GPU",
                    to_string(found.devices.front()), kOldestMajor);
  return found;
}

void open_device(int index) {
  require_device();
  const FoundDevices found = find_devices();
  if (index < 0 || index >= static_cast<int>(found.devices.size()))
    fail(ExitCode::usage, "device", "there is no GPU {}; expected 0 to {}", index, found.devices.size() - 1);
  const DeviceInfo& info = found.devices[static_cast<std::size_t>(index)];
  if (info.major < kOldestMajor)
    fail(ExitCode::usage, "device", "GPU {}, {}, is too old; expected sm_{}0 or later; choose another", index,
         to_string(info), kOldestMajor);
  set_backend(Device::cuda, std::make_shared<Gpu>(index, info));
}

void* current_stream() {
  const auto* const gpu = dynamic_cast<const Gpu*>(&backend(Device::cuda));
  require(gpu != nullptr, "device", "the backend of cuda is not a GPU opened by open_device");
  gpu->use();
  return gpu->stream();
}

Event::Event() {
  cudaEvent_t event = nullptr;
  TRIREME_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));  // a timed one costs more
  handle_ = event;
}
Event::~Event() { cudaEventDestroy(event_of(handle_)); }
void Event::record(void* stream) { TRIREME_CUDA(cudaEventRecord(event_of(handle_), stream_of(stream))); }
void Event::synchronize() const {
  if (cudaEventQuery(event_of(handle_)) == cudaSuccess) return;
  cudaGetLastError();  // not ready; another error stays, and the next line reports it
  ++device_work().waits;
  TRIREME_CUDA(cudaEventSynchronize(event_of(handle_)));
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
  TRIREME_CUDA(cudaHostAlloc(&data_, bytes > 0 ? bytes : 1, cudaHostAllocDefault), "{} bytes of pinned host memory",
               bytes);
}
PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

}  // namespace trireme::cuda
