// A collective or a message under way on the GPU, and its progress. Nothing here waits.
// Read next: parallel/comm/nccl/group.cpp, parallel/comm/nccl/messages.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "parallel/comm/collective.h"
#include "parallel/comm/common/barrier.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::comm {

inline constexpr auto nccl_poll_interval = std::chrono::microseconds(50);

/// The tensor's bytes on the GPU; null if it is undefined or empty.
inline std::byte* device_bytes(const Tensor& x) {
  return x.defined() && x.bytes() > 0 ? static_cast<std::byte*>(x.device_address()) : nullptr;
}

class NcclEvent {
 public:
  explicit NcclEvent(NcclApi& api) : api_(api), handle_(api.make_event()) {}
  ~NcclEvent() { api_.destroy_event(handle_); }
  NcclEvent(const NcclEvent&) = delete;
  NcclEvent& operator=(const NcclEvent&) = delete;
  NcclApi::Event get() const { return handle_; }

 private:
  NcclApi& api_;
  NcclApi::Event handle_;
};

/// The progress of something queued on the GPU.
struct NcclProgress {
  /// Waits in its stream; runs; has run for longer than the deadline; has ended.
  enum class Stage { queued, under_way, late, over };

  explicit NcclProgress(NcclApi& api) : begun(api), done(api) {}

  /// Time counts from the first look that finds it begun, so earlier kernels do not count.
  Stage advance(bool has_begun, bool is_done, Clock::time_point now, std::chrono::duration<double> deadline) {
    if (is_done) return Stage::over;
    if (!has_begun) return Stage::queued;
    if (!since) since = now;
    return waited(now) > deadline ? Stage::late : Stage::under_way;
  }
  std::chrono::duration<double> waited(Clock::time_point now) const {
    return since ? now - *since : std::chrono::duration<double>(0);
  }

  NcclEvent begun, done;
  std::optional<Clock::time_point> since;
};

struct NcclOperation : NcclProgress {
  NcclOperation(NcclApi& api, const Signature& of) : NcclProgress(api), signature(of) {}

  const Signature signature;
  std::uint64_t sequence = 0;   ///< in the group, from 1
  std::vector<Tensor> tensors;  ///< kept alive: the operation's own, then buffers
};

}  // namespace trireme::comm
