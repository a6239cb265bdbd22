// Which cores threads run on. The threads of a team wait for one another at every operation, and ranks at every
// collective; while they wait they spin. Two of them on one core take turns and are slower than one alone, and a system
// that leaves threads where they were last may keep them there for hours (measured: a third of the speed on two cores).
// So where there are cores enough, each thread keeps to some of its own.
// Read next: core/team.h.
#pragma once

#include <vector>

namespace trireme {

/// The cores that this process may use, in order: what its launcher or taskset left it, whatever threads keep to since.
/// At least one; {0} where the system does not say.
const std::vector<int>& usable_cores();

/// For as long as it lives, the calling thread keeps to part `first` of the usable cores cut into `parts` runs, which
/// differ by one core at most, and the other members of its team to the parts that follow. With fewer cores than parts
/// it does nothing, nor with one part, nor where the system refuses.
class OwnCores {
 public:
  OwnCores(int first, int parts);
  ~OwnCores();
  OwnCores(const OwnCores&) = delete;
  OwnCores& operator=(const OwnCores&) = delete;

  /// What the calling thread's team keeps to; parts == 0: to nothing.
  struct Share {
    int first = 0, parts = 0;
    bool operator==(const Share&) const = default;
  };
  static Share current();
  /// The calling thread becomes member `member` of a team with this share, which is not empty.
  static void keep_to(const Share& share, int member);

 private:
  const Share outer_;
  std::vector<int> outer_cores_;  // where the thread ran before; empty: nothing was changed
};

/// From here on the calling thread may run on all usable cores: for a thread that a rank starts to work beside it,
/// which would otherwise keep to the core of that rank.
void use_all_cores();

}  // namespace trireme
