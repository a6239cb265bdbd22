// What the host of rank 0 knows of the other hosts of a job, and what follows from it: a host is gone, a process on it
// is stopped, a rank on it hangs, or its link is slow. Pure functions of observations: no clock, no sockets.
//
// The memory that ranks of one host share (parallel/comm/watch/page.h) is not visible from others. So one process of
// each host answers the host of rank 0 over a connection, with what it sees of its own ranks.
// Read next: parallel/comm/hosts/host_links.h, which makes the observations.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/watch/report.h"

namespace trireme::hosts {

/// The process of the first rank answers for all of them.
struct Host {
  std::string name;
  std::vector<int> ranks;  ///< in ascending order
};

/// What a host says about one of its ranks.
struct RankNews {
  std::int32_t rank = 0;
  std::int32_t step = -1;         ///< -1: before the first
  float silence = 0;              ///< seconds without a sign of life, as that host observes it
  std::uint8_t waits = 0;         ///< it waits for other ranks, has ended or has failed: its silence means nothing
  watch::FixedText<64> place{};   ///< "rank 5 (dp=0,tp=1,pp=1)"
  watch::FixedText<240> doing{};  ///< watch::doing()
};

/// What was observed of a host. Seconds are observed time: it stands still while the observer itself does not run.
struct HostSigns {
  bool linked = false;       ///< it has answered at least once
  double since_answer = 0;   ///< since its last answer
  double since_network = 0;  ///< since its system acknowledged anything that was sent to it
  std::map<int, RankNews> ranks{};
};

enum class HostFault : std::uint8_t { gone, stopped, hung };

struct HostFinding {
  HostFault fault = HostFault::gone;
  int host = 0;  ///< its place in the list of hosts
  int rank = 0;  ///< the rank at fault; of a host that is gone, its first
};

/// A host that does not answer is named before the timeout ends, at this part of it.
constexpr double gone_after = 0.9;
/// At the timeout, a host's own watchdog names its ranks, with more details. The host of rank 0 names them later, in
/// case that host has no process left that could.
constexpr double stopped_after = 1.5, hung_after = 1.25;

/// `waiting`: a rank of this host has waited for the timeout. Only then does a rank elsewhere that hangs matter.
std::optional<HostFinding> find_lost_host(const std::vector<Host>& hosts, const std::vector<HostSigns>& signs,
                                          double timeout, bool waiting);

/// The error of a finding. `record`: the flight record of this host.
watch::LostRank lost_on_host(const HostFinding& finding, const std::vector<Host>& hosts,
                             const std::vector<HostSigns>& signs, double timeout, const std::string& record);

/// The error on another host when that of rank 0 no longer asks. Without a flight record: that host has its own.
watch::LostRank lost_first_host(const std::vector<Host>& hosts, int self, double silence, double timeout);

/// "rank 1 (dp=1,tp=0) step 12" for each of its ranks, as far as the host has said.
std::string ranks_text(const Host& host, const HostSigns& signs);

/// Finds a host whose round trips are long compared with those of the others.
class SlowLinks {
 public:
  static constexpr int window = 8, windows = 3;  ///< round trips of a window; windows in a row
  static constexpr double factor = 3;            ///< of the median of the other hosts
  static constexpr double least_seconds = 1e-3;  ///< and more than that by at least this

  struct Slow {
    int host = 0;
    double seconds = 0, median = 0;  ///< round trips: its own, and of the other hosts
  };

  explicit SlowLinks(std::size_t hosts) : hosts_(hosts) {}
  /// A round trip to that host has taken so long.
  void add(int host, double seconds);
  /// Returns hosts that have become slow; each is returned once. Only the shortest round trip of a window counts,
  /// because the others may have waited for a processor.
  std::vector<Slow> look();

 private:
  struct Seen {
    double least = 0, window_least = 0;
    int count = 0, slow = 0;
    bool complete = false, named = false;
  };
  std::vector<Seen> hosts_;
};

std::string to_string(const SlowLinks::Slow& slow, const std::vector<Host>& hosts, const std::vector<HostSigns>& signs);

}  // namespace trireme::hosts
