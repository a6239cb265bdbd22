// What the NCCL groups of one rank share: the library, whether all is well, and a thread that watches.
//
// NCCL's operations run on the GPU, and the program runs ahead of them; nobody on the host waits for one. So a thread
// looks at the operations under way: when one has been so for longer than the deadline, when NCCL reports an error, or
// when another rank is seen to do something else, the ranks are lost. The program is told first (on_failure, on the
// watching thread: it should end the process, as results on their way are undefined); then the communicators are
// aborted, which frees the GPU, and every later operation throws the same error.
// Read next: parallel/comm/nccl_group.cpp.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/comm/nccl_api.h"
#include "parallel/comm/nccl_group.h"
#include "parallel/comm/progress_board.h"

namespace trireme::comm {

/// A group as the watch sees it.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Lets go of operations that are over. Throws what has gone wrong.
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
  void forget(Watched& group);  ///< returns when the watch does not look at it

  void throw_failure() const;
  bool failed() const { return failed_; }
  /// No rank can go on: tells the program, then aborts all groups. Later operations throw the error.
  void fail(const std::exception_ptr& error);
  /// The same for the program's own thread, which learns of it by the throw. Call it without holding what look() or
  /// abort() need.
  [[noreturn]] void lose(ExitCode code, const char* where, const std::string& what);

 private:
  void run();
  bool keep(const std::exception_ptr& error);  // false: there was one already
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
