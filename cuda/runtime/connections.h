// The queues of hardware through which a host starts work on a GPU. CUDA calls them connections, and makes 8 unless the
// environment variable CUDA_DEVICE_MAX_CONNECTIONS says otherwise; 32 is the most. Streams beyond that number share a
// queue. Then work waits for work of another stream that was queued before it. Between ranks this can be a deadlock:
// what it waits for may wait for another rank, which waits for this one. So we ask for 32, and count streams.
// (CUDA C++ Programming Guide, "CUDA Environment Variables".)
// Read next: cuda/runtime/real.cpp, parallel/comm/nccl/library.cpp.
#pragma once

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "core/error.h"

namespace trireme::cuda {

inline constexpr const char* kConnectionsVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
inline constexpr int kMostConnections = 32;

/// Asks for the most connections, unless the user has chosen a number. Before the first call of CUDA, which reads it.
inline void ask_for_connections() { setenv(kConnectionsVariable, std::to_string(kMostConnections).c_str(), 0); }

/// The number that CUDA reads from the environment.
inline int connections() {
  const char* const set = std::getenv(kConnectionsVariable);
  if (set == nullptr) return 8;
  const std::string_view text = set;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > kMostConnections)
    fail(ExitCode::usage, "device", "{} is '{}'; expected a number from 1 to {}; unset it", kConnectionsVariable, text,
         kMostConnections);
  return count;
}

/// Counts the streams that a process makes on its GPU.
class StreamCount {
 public:
  /// Call before a stream is made. Throws ExitCode::usage if there is no connection left for it.
  void add(int most = connections()) {
    const int now = ++streams_;
    if (now <= most) return;
    --streams_;
    fail(ExitCode::usage, "device",
         "this process needs {} streams on its GPU, and {} is {}; expected a connection for each stream, because "
         "streams that share one can deadlock with other ranks; {}",
         now, kConnectionsVariable, most,
         most < kMostConnections ? "unset the variable, or use fewer mesh axes" : "use fewer mesh axes");
  }
  void remove() noexcept { --streams_; }
  int value() const { return streams_; }

 private:
  std::atomic<int> streams_{0};
};
inline StreamCount stream_count;

}  // namespace trireme::cuda
