// Artificial links: how long a message from one rank to another takes, and what it waits for on its way. So eight
// threads can imitate two nodes of four GPUs with a slow network between them.
//
// A message occupies each port and cable on its path for its bytes times the port's seconds per byte. It begins when
// all of them are free for that long, and arrives after the slowest of them and the path's latency. Who sends first has
// them first; a later message may use them before, if it is done by then. Two messages that are sent at the same time
// and need the same cable are served in the order of the calls. The paths:
//
//   within a node   from the sender's port within the node to the receiver's
//   fat tree        through one port of each rank, and the up- and downlinks of the two nodes. The ranks of a node
//                   share these. Their bandwidth is that of all ports together divided by `oversubscription`
//   rail            a switch for each place in a node: to another place, first within the node to the rank at that
//                   place
//   torus           nodes in a grid whose lines are rings: through the cables between neighbours, dimension by
//                   dimension, the shorter way round; latency per cable. If both ways are as long, nodes with an even
//                   coordinate send forward and the others backward, so all cables are used
//
// simulate() predicts times by the same model: it runs the steps of a collective on an idle network, without waiting.
// Read next: parallel/comm/algorithms/network.cpp.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "parallel/comm/algorithms/steps.h"

namespace trireme::comm {

/// One kind of connection.
struct Link {
  double latency = 0;           ///< seconds
  double seconds_per_byte = 0;  ///< 1 / bandwidth
};

struct Links {
  enum class Topology : std::uint8_t { fat_tree, rail, torus };

  int ranks_per_node = 1;
  Link within, between;  ///< ranks of one node, and of two
  Topology topology = Topology::fat_tree;
  double oversubscription = 1;  ///< fat tree: at least 1
  std::vector<int> torus = {};  ///< nodes along each dim

  int node_of(int rank) const { return rank / ranks_per_node; }
  int place_of(int rank) const { return rank % ranks_per_node; }
};

/// The state of the links: what is in use, and until when. Thread-safe.
class Network {
 public:
  explicit Network(Links links) : links_(std::move(links)) {}

  const Links& links() const { return links_; }
  struct Times {
    double leaves;   ///< the sender's port is free again: its next message may begin
    double arrives;  ///< the receiver has all of it
  };
  /// Sends a message between two ranks of the world at time `now`, in seconds. Time does not run backwards: a message
  /// that is older than one before counts as sent with it.
  Times deliver(int from, int to, std::int64_t bytes, double now);
  /// Of all messages so far.
  std::int64_t bytes() const {
    const std::scoped_lock lock(mutex_);
    return bytes_;
  }

 private:
  enum class Port : std::uint8_t { out_within, in_within, out_between, in_between, up, down, cable };
  struct Hop {
    Port port;
    int owner;       // a rank or a node
    int detail = 0;  // of a cable: which of its node's
    double seconds_per_byte;
    auto key() const { return std::tuple(port, owner, detail); }
  };
  /// When messages occupy a port, in the order of time.
  class Uses {
   public:
    void forget_before(double now);
    /// The first time from `begin` on at which the port is free for `seconds`.
    double free_from(double begin, double seconds) const;
    void add(double begin, double seconds);

   private:
    struct Use {
      double begin, end;
    };
    std::vector<Use> uses_;
  };
  struct Path {
    std::vector<Hop> hops;
    double latency = 0;
  };
  Path path(int from, int to) const;
  void add_within(Path& path, int from, int to) const;
  void add_torus(Path& path, int from, int to) const;

  Links links_;
  mutable std::mutex mutex_;
  std::int64_t bytes_ = 0;
  double latest_ = 0;  // time of a message
  std::map<std::tuple<Port, int, int>, Uses> uses_;
};

/// A message of a simulated collective.
struct Delivery {
  int from, to;  ///< ranks of the group
  double sent, arrived;
  std::int64_t bytes;
};

struct Simulated {
  double seconds = 0;  ///< until the last rank is done
  std::vector<Delivery> messages;
};

/// Runs the steps of all ranks of a group on an idle network. `members`: their ranks in the world. `bytes`: of a chunk
/// on a rank. `seconds_per_summed_byte`: gamma.
Simulated simulate(const std::vector<Steps>& steps, const std::vector<int>& members, const Links& links,
                   const std::function<std::int64_t(int rank, int chunk)>& bytes, double seconds_per_summed_byte = 0);

}  // namespace trireme::comm
