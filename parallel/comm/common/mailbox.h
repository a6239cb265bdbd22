// Messages on their way to one rank, in one group. A send leaves a copy here and is complete; a recv takes the next one
// of its sender and tag. Message k of a (sender, tag) goes to the k-th recv that was posted, in whatever order the
// recvs are waited for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "parallel/comm/common/barrier.h"
#include "parallel/comm/process_group.h"

namespace trireme::comm {

class Mailbox {
 public:
  explicit Mailbox(const std::atomic<bool>& failed) : failed_(failed) {}

  void put(int from, int tag, const Tensor& x);
  void put_final(int from, int tag, Tensor message);  ///< without a copy: nobody may write to it any more
  /// The number of the message that the recv posted now will get.
  std::uint64_t post(int from, int tag);
  bool arrived(int from, int tag, std::uint64_t number);
  /// Waits for that message and moves it into `message`. Calls wait.lasts() once the wait is long.
  WaitResult take(int from, int tag, std::uint64_t number, watch::Wait& wait, Tensor& message);
  void leave(int from);  ///< that rank will send nothing more
  void wake();

 private:
  struct Stream {
    std::uint64_t sent = 0, posted = 0;
    std::map<std::uint64_t, Tensor> messages;  // by number
  };

  const std::atomic<bool>& failed_;
  std::mutex mutex_;
  std::condition_variable delivered_;
  std::map<std::pair<int, int>, Stream> streams_;  // by sender and tag
  std::set<int> left_;
};

/// Posts a recv of `y`. If no message will come, calls explain(reason), which must throw.
Work receive(std::shared_ptr<ProcessGroup> group, Mailbox& box, Tensor y, int from, int tag,
             std::function<void(WaitResult)> explain);

}  // namespace trireme::comm
