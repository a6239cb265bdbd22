// The time of a training step, by running the traces of its ranks (parallel/comm/trace.h) against a model of the
// machine: each rank's kernels one after another, its collectives when all members have come to them, its messages when
// they have arrived. Schedules, ZeRO and overlap are not modelled: they are in the traces.
//
// Of a large mesh, the ranks of one pipeline are enough: a collective with ranks that are not simulated begins when
// those that are have come to it, and a message from such a rank arrives as if it did what the receiver does.
//
// Times may vary. A kernel's from call to call: then a collective waits for the slowest of all its ranks, also of those
// that are not simulated, and the more ranks, the later it comes. And devices may differ in speed: then the slowest of
// the ranks that do the same sets the pace.
//
// Ranks may share processors: while more threads want to run than a node has cores, each advances more slowly. So do
// transfers that use the same port of a rank at the same time, as the sums of gradients and a pipeline's messages may.
// Read next: ops/plan/simulate.cpp, ops/plan/clock.h; ops/plan/this_machine.h and ops/plan/cluster.h: what things take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/trace.h"

namespace trireme::plan {

/// What a transfer takes once all its ranks are ready: time of each rank's processor, and then time on links.
struct TransferTime {
  enum class Port : std::uint8_t { within, between };  ///< of a rank: to others of its node, and to other nodes

  double processor = 0, link = 0;  ///< seconds
  double busy = 0;  ///< of `link`: while it uses the port, which it shares with the rank's other transfers
  Port port = Port::between;
};

/// How much times vary: standard deviations of normal distributions, as shares of the mean.
struct Variation {
  double calls = 0;    ///< of a kernel's time, from call to call
  double devices = 0;  ///< of the time of all kernels, from device to device
};
/// The expected largest of `count` standard normal numbers (Blom 1958, "Statistical estimates and transformed
/// beta-variables"); 0 for one.
double expected_largest(double count);

/// What things take on a machine.
class MachineModel {
 public:
  virtual ~MachineModel() = default;
  virtual double kernel(const ProfileEvent& call) const = 0;  ///< seconds
  /// The program's own work of `seconds` on the machine that made the trace: here, and not hidden.
  virtual double host(double seconds) const { return seconds; }
  virtual TransferTime collective(const Trace::Transfer& transfer, const Trace::Group& group) const = 0;
  /// A message: processor time of the sender, and then until it has arrived.
  virtual TransferTime message(const Trace::Transfer& transfer, int from) const = 0;
  /// Seconds from the end of a wait until a thread that slept in it runs again.
  virtual double wake() const { return 0; }
  virtual Variation variation() const { return {}; }
  /// Cores that the ranks of a node share; 0: each rank has a device of its own.
  virtual int shared_cores() const { return 0; }
  virtual int node_of(int rank) const = 0;
};

/// One rank to simulate.
struct RankProgram {
  int rank = 0;  ///< in the world
  const Trace* trace = nullptr;
  int threads = 1;  ///< that its kernels use
  int like_it = 1;  ///< ranks that do the same, with this one, of which no other is simulated
};

/// What a rank did in the last step of its trace, in seconds.
struct RankTime {
  double step = 0;                                       ///< all of it
  std::map<std::string, double, std::less<>> kernels;    ///< by name, at full speed
  double host = 0;                                       ///< the program's own work
  std::map<std::string, double, std::less<>> exchanges;  ///< in exchanges, or waiting for them: by group
};

/// What the ranks did when, in the last step of their traces.
struct Timeline {
  struct Span {
    std::size_t index;          ///< of an event; in the background, of a transfer
    double begin = 0, end = 0;  ///< seconds since the first rank began the step
  };
  struct Rank {
    std::vector<Span> program;     ///< kernels, and waits for other ranks
    std::vector<Span> background;  ///< collectives of its communication thread
  };
  std::vector<Rank> ranks;
  double seconds = 0;  ///< until the last rank ends the step
};

/// Throws ExitCode::internal if the ranks wait for each other for ever. `timeline`: is filled in, unless it is null.
std::vector<RankTime> simulate(const std::vector<RankProgram>& ranks, const MachineModel& machine,
                               Timeline* timeline = nullptr);

/// The time of a step: of the slowest rank.
double step_seconds(const std::vector<RankTime>& ranks);

}  // namespace trireme::plan
