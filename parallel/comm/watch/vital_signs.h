// What the system knows about any thread of this machine: whether it runs, and how much processor time it has had. So a
// rank is not mistaken for stopped when it is busy without heartbeats (one long kernel, reading a file), or when an
// overloaded machine does not schedule it. Reads /proc: Linux only.
#pragma once

#include <cstdint>

namespace trireme::watch {

struct ThreadId {
  std::int64_t process = 0, thread = 0;
  std::uint64_t space = 0;  ///< the pid namespace: containers have their own
};
ThreadId this_thread();

struct VitalSigns {
  /// As in ps: R runs or waits for a processor, D waits for a disk, S sleeps, T is stopped, t is traced, Z has ended;
  /// 0: no such thread; '?': unknown.
  char state = '?';
  std::uint64_t processor_time = 0;  ///< nanoseconds
  int signal = 0;                    ///< that ended the process, for a Z; 0: unknown

  bool gone() const { return state == 0 || state == 'Z' || state == 'X'; }
};
VitalSigns vital_signs(const ThreadId& thread);

/// Nanoseconds that a thread could have run but waited for a processor, from the content of its schedstat file; 0 if
/// the system does not say.
std::int64_t waited_for_processor(const char* schedstat);
std::int64_t waited_for_processor();  ///< of the calling thread

/// True if any thread of that process waits for a disk: it may be the rank's thread that writes a checkpoint.
bool waits_for_disk(std::int64_t process);

}  // namespace trireme::watch
