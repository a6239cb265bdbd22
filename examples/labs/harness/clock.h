// Counts the time that the ranks of a lab would have taken on given links.
//
// Each rank has a processor, and one line of background tasks. Computing takes the seconds that the lab says; a message
// takes what parallel/comm/algorithms/network.h says: latency + bytes / bandwidth, and it waits where its port is in use.
// All of it is arithmetic on the record of a run (cluster.h): no machine's speed and no clock is in it.
// Read next: examples/labs/harness/clock.cpp, then examples/labs/harness/picture.h.
#pragma once

#include <string>
#include <vector>

#include "examples/labs/harness/cluster.h"
#include "parallel/comm/algorithms/network.h"

namespace trireme::labs {

/// A part of a rank's time.
struct Span {
  enum class Kind : std::uint8_t {
    compute,
    send,   ///< the message leaves
    waits,  ///< for a message that has not arrived, or a task that is not done
  };
  Kind kind;
  double begin, end;  ///< seconds
  std::string what;   ///< what was computed
  int peer = -1;      ///< of a message
  int task = -1;      ///< background task in which it was; -1: the rank's own line
};

/// Where the ranks' time went.
struct Timeline {
  double seconds = 0;                    ///< until the last rank was done
  std::vector<std::vector<Span>> ranks;  ///< in the order of their begins

  double computing(int rank) const;  ///< seconds
  /// Seconds in which the rank's own line sent or waited: communication that no computation hides.
  double exposed(int rank) const;
};

/// The time of a run on these links.
Timeline timed(const Run& run, const comm::Links& links);

/// Links that join every two ranks alike.
comm::Links equal_links(double latency, double bytes_per_second);

}  // namespace trireme::labs
