// When a collective runs. Each rank has one queue per group: operations run in the order they were launched, one at a
// time. `lazy` ones run on the thread that waits for them (with everything queued before them); a
// `background` one makes the queue's communication thread run the queue up to and including it while the caller
// computes. Whichever thread comes first runs the next operation: a waiting caller never sleeps while it could run one.
//
// After an operation fails, every later one throws the same error, so that the error is not lost if nobody waits for
// that Work.
// Read next: parallel/comm/threads/group.cpp.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/profile.h"
#include "parallel/comm/collective.h"

namespace trireme::comm {

/// True on a queue's communication thread, which should leave the cores to the callers.
bool on_communication_thread();

class OperationQueue {
 public:
  /// `run` carries out one collective and returns when this rank's part is done; `sequence` counts from 1 in the group.
  using Run = std::function<void(const Collective&, std::uint64_t sequence)>;
  /// `abandon` must make a `run` under way end soon. It is called when the queue is destroyed with operations left, in
  /// stack unwinding.
  OperationQueue(Run run, std::function<void()> abandon);
  ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// `owner`: the group this queue is part of, kept alive by the Work.
  Work push(std::shared_ptr<ProcessGroup> owner, Collective collective, Launch launch);

 private:
  struct Operation {
    Collective collective;
    std::optional<ProfileEvent> event;  // if a profile is being recorded
    std::uint64_t sequence = 0;
    bool background = false, finished = false;
    std::exception_ptr error;
  };
  class Ticket;

  void wait(Operation& operation);
  bool done(const Operation& operation);
  void run_front(std::unique_lock<std::mutex>& lock);
  void communicate();  // the communication thread

  Run run_;
  std::function<void()> abandon_;
  std::mutex mutex_;
  std::condition_variable work_, progress_;  // for the communication thread; for waiting callers
  std::deque<std::shared_ptr<Operation>> queue_;
  std::uint64_t launched_ = 0;
  int background_ = 0;  // number of background operations in the queue
  bool busy_ = false, stop_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace trireme::comm
