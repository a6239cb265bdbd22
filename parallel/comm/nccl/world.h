// What the NCCL groups of one rank share: the library, the failure state, and a watching thread.
//
// NCCL's operations run on the GPU and the program runs ahead of them, so nothing on the host waits for one. Instead a
// thread watches the operations under way. The ranks are lost when an operation has run for longer than the deadline,
// when NCCL reports an error, or when another rank does a different operation. First on_failure is called, on the
// watching thread; it should end the process, because results under way are undefined. Then the communicators are
// aborted, which frees the GPU, and every later operation throws the same error.
// Read next: parallel/comm/nccl/group.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/comm/nccl/api.h"
#include "parallel/comm/nccl/group.h"
#include "parallel/comm/progress_board.h"

namespace trireme::comm {

/// The interface of a group to the watch.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Releases operations that have ended. Throws the error if something went wrong.
  virtual void look() = 0;
  virtual void abort() noexcept = 0;
};

class NcclWorld {
 public:
  NcclWorld(std::shared_ptr<NcclApi> shared_api, NcclOptions shared_options);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  NcclApi& api() { return *api_; }
  const NcclOptions& options() const { return options_; }

  void watch(Watched& group);
  void forget(Watched& group);  ///< afterwards the watch does not use it

  void throw_failure() const;
  bool failed() const { return failed_; }
  /// No rank can go on: calls on_failure, then aborts all groups. Later operations throw the error.
  void fail(const std::exception_ptr& error);
  /// As fail(), for the program's own thread: throws the error instead of calling on_failure. The caller must not hold
  /// a lock that look() or abort() need.
  [[noreturn]] void lose(ExitCode code, const char* where, const std::string& what);

 private:
  void run();
  bool keep(const std::exception_ptr& error);  // false: there already was an error
  void abort_all();

  std::shared_ptr<NcclApi> api_;
  const NcclOptions options_;
  std::mutex groups_mutex_;
  std::vector<Watched*> groups_;
  std::atomic<bool> failed_{false};
  mutable std::mutex error_mutex_;
  std::exception_ptr error_;
  std::mutex stop_mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace trireme::comm
