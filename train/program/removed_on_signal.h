// A temporary folder that is removed if a signal ends the program. For a program that makes a folder of files and
// handles no signals itself:
//
//   RemovedOnSignal on_signal;                // from here to watch(), signals wait
//   AtomicFolder folder(out);
//   on_signal.watch(folder.temporary());
//   ...                                       // write the files
//   on_signal.hold();                         // signals wait again: the folder is complete, or about to be
//   folder.commit();
//
// Read next: core/io.h; train/program/signals.h, for programs that train.
#pragma once

#include <csignal>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// The signals that users and job systems send: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU,
/// except those that were ignored at the start. At most one object at a
/// time, on the main thread, to which the system gives such signals.
class RemovedOnSignal {
 public:
  RemovedOnSignal();
  /// Restores what was before. A signal that has waited then ends the process, as usual.
  ~RemovedOnSignal();
  RemovedOnSignal(const RemovedOnSignal&) = delete;
  RemovedOnSignal& operator=(const RemovedOnSignal&) = delete;

  /// From now on a signal removes `folder` with the files in it, not with folders, and ends the process with a message
  /// and ExitCode::retryable.
  void watch(const std::filesystem::path& folder);
  /// From now on a signal leaves the folder as it is, for a later start that goes on with it, and ends the process with
  /// `told`, a line, and ExitCode::retryable. `told` must outlive this object.
  void keep(std::string_view told);
  /// Signals wait until this object is destroyed.
  void hold();

 private:
  void handle(void (*handler)(int));

  sigset_t signals_{}, mask_before_{};
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace trireme
