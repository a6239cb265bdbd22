#include "parallel/comm/algorithms/network.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "core/error.h"

namespace trireme::comm {

void Network::Uses::forget_before(double now) {
  std::erase_if(uses_, [&](const Use& use) { return use.end <= now; });
}

double Network::Uses::free_from(double begin, double seconds) const {
  constexpr double rounding = 1e-4;  // so that equal messages fit between each other
  for (const Use& use : uses_) {
    if (begin + (1 - rounding) * seconds <= use.begin) break;
    begin = std::max(begin, use.end);
  }
  return begin;
}

void Network::Uses::add(double begin, double seconds) {
  const auto after = std::ranges::upper_bound(uses_, begin, {}, &Use::begin);
  uses_.insert(after, Use{begin, begin + seconds});
}

void Network::add_within(Path& path, int from, int to) const {
  if (from == to) return;
  path.latency += links_.within.latency;
  path.hops.push_back({Port::out_within, from, 0, links_.within.seconds_per_byte});
  path.hops.push_back({Port::in_within, to, 0, links_.within.seconds_per_byte});
}

// Dimension by dimension, the shorter way round each ring. A cable belongs to the node that it leaves; its detail is
// the dim and the direction. Half-way round, messages of one direction alone would leave the other's cables idle.
void Network::add_torus(Path& path, int from, int to) const {
  int here = links_.node_of(from), stride = 1;
  const int there = links_.node_of(to);
  for (std::size_t dim = 0; dim < links_.torus.size(); ++dim) {
    const int extent = links_.torus[dim];
    const int distance = ((there / stride - here / stride) % extent + extent) % extent;
    const bool forward = 2 * distance < extent || (2 * distance == extent && here / stride % extent % 2 == 0);
    for (int hop = forward ? distance : extent - distance; hop > 0; --hop) {
      path.latency += links_.between.latency;
      path.hops.push_back(
          {Port::cable, here, static_cast<int>(2 * dim) + (forward ? 0 : 1), links_.between.seconds_per_byte});
      const int coordinate = here / stride % extent;
      here += ((coordinate + (forward ? 1 : extent - 1)) % extent - coordinate) * stride;
    }
    stride *= extent;
  }
}

Network::Path Network::path(int from, int to) const {
  Path path;
  if (links_.node_of(from) == links_.node_of(to)) {
    add_within(path, from, to);
    return path;
  }
  if (links_.topology == Links::Topology::torus) {
    add_torus(path, from, to);
    return path;
  }
  const Link& link = links_.between;
  int sender = from;
  if (links_.topology == Links::Topology::rail) {
    sender = links_.node_of(from) * links_.ranks_per_node + links_.place_of(to);
    add_within(path, from, sender);
  }
  path.latency += link.latency;
  path.hops.push_back({Port::out_between, sender, 0, link.seconds_per_byte});
  if (links_.oversubscription > 1) {
    const double shared = link.seconds_per_byte * links_.oversubscription / links_.ranks_per_node;
    path.hops.push_back({Port::up, links_.node_of(from), 0, shared});
    path.hops.push_back({Port::down, links_.node_of(to), 0, shared});
  }
  path.hops.push_back({Port::in_between, to, 0, link.seconds_per_byte});
  return path;
}

Network::Times Network::deliver(int from, int to, std::int64_t bytes, double now) {
  const Path way = path(from, to);
  const std::scoped_lock lock(mutex_);
  bytes_ += bytes;
  now = latest_ = std::max(latest_, now);
  const auto seconds_on = [&](const Hop& hop) { return static_cast<double>(bytes) * hop.seconds_per_byte; };
  for (const Hop& hop : way.hops) uses_[hop.key()].forget_before(now);
  double begin = now, before = -1;
  while (begin != before) {  // until all are free at the same time
    before = begin;
    for (const Hop& hop : way.hops) begin = uses_[hop.key()].free_from(begin, seconds_on(hop));
  }
  double slowest = 0;
  for (const Hop& hop : way.hops) {
    uses_[hop.key()].add(begin, seconds_on(hop));
    slowest = std::max(slowest, seconds_on(hop));
  }
  return {begin + seconds_on(way.hops.front()), begin + slowest + way.latency};
}

namespace {

/// One rank's progress through its steps.
struct Progress {
  std::size_t next = 0;
  double now = 0;
};

}  // namespace

// Of the ranks that can go on, the one with the earliest time makes its next step. So messages take ports in the order
// of time.
Simulated simulate(const std::vector<Steps>& steps, const std::vector<int>& members, const Links& links,
                   const std::function<std::int64_t(int rank, int chunk)>& bytes, double seconds_per_summed_byte) {
  Network network(links);
  Simulated result;
  std::vector<Progress> ranks(steps.size());
  std::map<std::pair<int, int>, std::deque<double>> arrivals;  // by sender and receiver
  while (true) {
    int chosen = -1;
    double earliest = std::numeric_limits<double>::infinity();
    bool finished = true;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      const Progress& progress = ranks[static_cast<std::size_t>(rank)];
      const Steps& list = steps[static_cast<std::size_t>(rank)];
      if (progress.next == list.size()) continue;
      finished = false;
      const Step& step = list[progress.next];
      double begin = progress.now;
      if (step.action == Step::Action::receive || step.action == Step::Action::add) {
        const auto& waiting = arrivals[{step.peer, rank}];
        if (waiting.empty()) continue;
        begin = std::max(begin, waiting.front());
      }
      if (begin >= earliest) continue;
      earliest = begin;
      chosen = rank;
    }
    if (finished) break;
    require(chosen >= 0, "simulate",
            "every rank waits for a message that nobody sends; expected steps of one algorithm");
    Progress& progress = ranks[static_cast<std::size_t>(chosen)];
    const Step& step = steps[static_cast<std::size_t>(chosen)][progress.next++];
    std::int64_t count = 0;
    for (const int chunk : step.chunks) count += bytes(chosen, chunk);
    progress.now = earliest;
    switch (step.action) {
      case Step::Action::send: {
        const auto world = [&](int rank) { return members[static_cast<std::size_t>(rank)]; };
        const Network::Times times = network.deliver(world(chosen), world(step.peer), count, progress.now);
        arrivals[{chosen, step.peer}].push_back(times.arrives);
        result.messages.push_back({chosen, step.peer, progress.now, times.arrives, count});
        progress.now = times.leaves;
        break;
      }
      case Step::Action::add:
      case Step::Action::receive:
        arrivals[{step.peer, chosen}].pop_front();
        if (step.action == Step::Action::add) progress.now += static_cast<double>(count) * seconds_per_summed_byte;
        break;
      case Step::Action::combine:  // of k chunks: k - 2 sums, and a copy
        if (step.chunks.size() > 2)
          progress.now += static_cast<double>(bytes(chosen, step.chunks[0])) *
                          static_cast<double>(step.chunks.size() - 2) * seconds_per_summed_byte;
        break;
    }
    result.seconds = std::max(result.seconds, progress.now);
  }
  return result;
}

}  // namespace trireme::comm
