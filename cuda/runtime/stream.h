// Streams, events and pinned host memory as RAII objects.
//
// All kernels and copies of Device::cuda go to one stream, current_stream(), so that the GPU runs them in program order
// and freed memory can be reused at once. A second stream is for concurrent copies; events synchronise the two.
// Handles are opaque here, so that this header needs no toolkit. Read next: cuda/runtime/real.cpp.
#pragma once

#include <cstddef>

namespace trireme::cuda {

/// The opened device's stream, a cudaStream_t; under emulation null. Also makes that device the calling thread's.
void* current_stream();

class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();  // NOLINT(performance-trivially-destructible): it is so under emulation only
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  void* handle() const { return handle_; }
  void synchronize() const;  ///< the calling thread waits for all that was queued

 private:
  void* handle_ = nullptr;
};

class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream);           ///< happens after all work queued there so far
  void make_wait(void* stream) const;  ///< later work there waits for the last record
  void synchronize() const;            ///< the calling thread waits, unless the last record's work is done
  void* handle() const { return handle_; }
  /// Milliseconds from `start` to this, both recorded; waits for this one.
  float since(const Event& start) const;

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
