// Pins threads to cores. The threads of a team wait for one another at every operation, and ranks at every collective;
// they spin while they wait. Two spinning threads on one core are slower than one thread alone, and a system that
// leaves threads on the core they ran on last may keep them there for hours (measured: a third of the speed on two
// cores). So if there are enough cores, each thread runs only on cores of its own.
// Read next: core/team.h.
#pragma once

#include <optional>
#include <vector>

#include "core/control_groups.h"

namespace trireme {

/// The cores that this process may use, in order, as its launcher or taskset set them; pinning a thread does not change
/// the list. At least one; {0} if the system does not say.
const std::vector<int>& usable_cores();

/// How many of `cores` cores can be busy all the time: a control group's quota of processor time may allow fewer. The
/// system stops the threads of a group that has used up its quota, and threads wait for one another, so 2 threads with
/// a quota of 1 processor are slower than 1 thread. At least 1.
int within_quota(int cores, std::optional<double> quota = control_group_limits().processors);

/// Cuts the usable cores into `parts` ranges, whose sizes differ by one at most: a range for each thread of all ranks.
/// While this object lives, the calling thread runs on range `first`, and member i of its team on range `first` + i.
/// Does nothing if there is only one range, if there are fewer cores than ranges, or if the system refuses.
class OwnCores {
 public:
  OwnCores(int first, int parts);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

  /// What the calling thread's team is pinned to: ranges from `first` on, of `parts` in all; parts == 0: not pinned.
  struct Share {
    int first = 0, parts = 0;
    bool operator==(const Share&) const = default;
  };
  static Share current();  ///< of the calling thread
  /// Pins the calling thread as member `member` of a team with this share, which is not empty.
  static void keep_to(const Share& share, int member);

 private:
  const Share outer_;
  std::vector<int> outer_cores_;  // the cores the thread could use before; empty: nothing was changed
};

/// Lets the calling thread run on all usable cores from here on. For a helper thread that a rank starts: it would
/// otherwise inherit the rank's cores.
void use_all_cores();

}  // namespace trireme
