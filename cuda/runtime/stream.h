// The stream of Device::cuda, and events and pinned host memory as RAII objects.
//
// All kernels and copies of Device::cuda go to one stream, current_stream(), so that the GPU runs them in program order
// and freed memory can be reused at once. Copies through pinned memory are queued there; an event tells when one is
// done. Handles are opaque here, so that this header needs no toolkit. Read next: cuda/runtime/real.cpp.
#pragma once

#include <cstddef>

namespace trireme::cuda {

/// The opened device's stream, a cudaStream_t; under emulation null. Also makes that device the calling thread's.
void* current_stream();

class Event {
 public:
  Event();
  ~Event();  // NOLINT(performance-trivially-destructible): it is so under emulation only
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream);  ///< marks the end of all work queued there so far
  void synchronize() const;   ///< the calling thread waits until the work before the last mark is done
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

/// Host memory that a GPU copies from and to without staging; initially undefined.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trireme::cuda
