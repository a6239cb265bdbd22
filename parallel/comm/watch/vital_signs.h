// What the system says about a thread of this machine, whichever process it belongs to: whether it runs, and how much
// processor time it has had. With it a rank that is busy without a heartbeat (one long kernel, a file being read), or
// that an overloaded machine does not let run, is not taken for one that has stopped. From /proc: Linux.
#pragma once

#include <cstdint>

namespace trireme::watch {

struct ThreadId {
  std::int64_t process = 0, thread = 0;
  std::uint64_t space = 0;  ///< of process numbers: containers have their own
};
ThreadId this_thread();

struct VitalSigns {
  /// As in ps: R runs or waits for a processor, D waits for a disk, S sleeps, T is stopped, t is traced, Z has ended;
  /// 0: there is no such thread; '?': it cannot be told.
  char state = '?';
  std::uint64_t processor_time = 0;  ///< nanoseconds
  int signal = 0;                    ///< of a Z: what has ended its process; 0: not known

  bool gone() const { return state == 0 || state == 'Z' || state == 'X'; }
};
VitalSigns vital_signs(const ThreadId& thread);

/// Whether a thread of that process waits for a disk: it may be a helper of the rank that writes a checkpoint.
bool waits_for_disk(std::int64_t process);

}  // namespace trireme::watch
