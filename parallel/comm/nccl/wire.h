// One direction between two ranks for messages: a communicator of the sender (0) and the receiver (1), and the stream
// in which its operations follow one another. Only the destructor waits.
// Read next: parallel/comm/nccl/messages.h.
#pragma once

#include <string>

#include "core/error.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::comm {

class NcclWire {
 public:
  NcclWire(NcclApi& api, const NcclApi::Id& id, int place, const std::string& name)
      : api_(api), name_(name), stream_(api.make_stream()) {
    try {
      comm_ = api.join(id, 2, place, name, most_blocks);
    } catch (...) {
      api_.destroy_stream(stream_);
      throw;
    }
  }
  ~NcclWire() {
    if (comm_ != nullptr) api_.end(comm_);
    api_.destroy_stream(stream_);
  }
  NcclWire(const NcclWire&) = delete;
  NcclWire& operator=(const NcclWire&) = delete;

  /// True if NCCL accepts the next call: false until both ranks have joined, and while the first message connects them.
  bool ready() const {
    if (comm_ == nullptr) return false;
    const NcclApi::State state = api_.state(comm_);
    if (state.health == NcclApi::Health::broken)
      fail(ExitCode::retryable, "nccl", "{}: {}; look at the messages of other ranks, or set NCCL_DEBUG=INFO", name_,
           state.problem);
    return state.health == NcclApi::Health::ready;
  }
  void abort() noexcept {
    if (comm_ != nullptr) api_.abort(comm_);
    comm_ = nullptr;
  }

  NcclApi::Comm comm() const { return comm_; }
  NcclApi::Stream stream() const { return stream_; }
  const std::string& name() const { return name_; }

 private:
  // A send occupies its blocks until the receiver's GPU takes it, and several wires may wait at one time. With so few
  // blocks most multiprocessors of an A100 or H100 stay free for kernels. Not measured: there was no GPU.
  static constexpr int most_blocks = 8;

  NcclApi& api_;
  const std::string name_;
  NcclApi::Stream stream_;
  NcclApi::Comm comm_ = nullptr;
};

}  // namespace trireme::comm
