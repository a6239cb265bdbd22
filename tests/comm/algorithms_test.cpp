// The algorithms of collectives: each passes the suite that transports pass, takes the time that its formula says on
// simulated links, and is refused where it cannot work.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>

#include "parallel/comm/algorithms/message_group.h"
#include "parallel/comm/times.h"
#include "parallel/comm/watch/beacon.h"
#include "tests/comm/patience.h"
#include "tests/comm/suite.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::comm;
using testing::says;
using testing::thrown_by;

namespace algorithms_test {
namespace {

CollectiveSpec spec_of(CollectiveKind kind, int ranks, int ranks_per_node = 1) {
  CollectiveSpec spec{.kind = kind, .ranks = ranks};
  for (int r = 0; r < ranks; ++r) spec.nodes.push_back(r / ranks_per_node);
  return spec;
}

/// Links that take no time, so that tests are as fast as without.
Links instant(int ranks_per_node) {
  Links links;
  links.ranks_per_node = ranks_per_node;
  return links;
}

void check_group(ProcessGroup& group, bool subgroups) {
  testing::check_collectives(group);
  testing::check_bits(group);
  testing::check_bf16_accumulation(group);
  testing::check_launches(group);
  testing::check_messages(group);
  testing::check_any_order(group);
  if (subgroups) testing::check_subgroups(group);
}

/// Seconds of an all_reduce or so of `bytes` on an idle network of these links.
double simulated(Algorithm algorithm, const CollectiveSpec& spec, const Links& links, std::int64_t bytes,
                 double gamma = 0) {
  std::vector<int> members(static_cast<std::size_t>(spec.ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto of_chunk = [&](int, int) { return bytes / spec.ranks; };
  return simulate(all_steps(algorithm, spec), members, links, of_chunk, gamma).seconds;
}

Links uniform(double latency, double seconds_per_byte) {
  Links links;
  links.within = links.between = {.latency = latency, .seconds_per_byte = seconds_per_byte};
  return links;
}

}  // namespace

TEST_CASE("every algorithm passes the suite, on every number of ranks that it serves") {
  for (const auto& [label, algorithm] : algorithms()) {
    for (const int ranks : {2, 3, 8}) {
      const int per_node = ranks % 2 == 0 ? ranks / 2 : 1;
      if (!refusal(algorithm, spec_of(CollectiveKind::all_reduce, ranks, per_node)).empty()) continue;
      CAPTURE(label);
      CAPTURE(ranks);
      const auto network = std::make_shared<Network>(instant(per_node));
      CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience, [&](const std::shared_ptr<ProcessGroup>& world) {
        const bool any_subgroup = algorithm != Algorithm::halving && algorithm != Algorithm::hierarchical;
        check_group(*with_algorithm(world, {.algorithm = algorithm, .network = network}), any_subgroup);
        // Without a network, what an algorithm does not serve is made by the transport.
        if (algorithm != Algorithm::hierarchical)
          testing::check_any_order(*with_algorithm(world, {.algorithm = algorithm}));
      }));
    }
  }
}

TEST_CASE("with a network every collective and message goes over it, and with an algorithm as many bytes as it lists") {
  const auto network = std::make_shared<Network>(instant(1));
  run_thread_ranks(4, 1, testing::patience, [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto group = with_algorithm(world, {.algorithm = Algorithm::ring, .network = network});
    const Tensor x = Tensor::zeros({4000});
    group->all_reduce(x, ReduceOp::sum, Launch::lazy, SumOrder::any).wait();
    world->barrier();
    testing::verify(network->bytes() == 4 * 6 * 4000, "{} bytes",
                    network->bytes());  // 2 (n - 1) quarters from each rank
    world->barrier();
    const Work sent = group->send(x, (world->rank() + 1) % 4, 0);
    group->recv(x, (world->rank() + 3) % 4, 0).wait();
    world->barrier();
    testing::verify(network->bytes() == 4 * (6 * 4000 + 16000), "{} bytes", network->bytes());
  });
}

TEST_CASE("sums are in rank order unless the caller allows another") {
  run_thread_ranks(4, 1, testing::patience, [](const std::shared_ptr<ProcessGroup>& world) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::halving}) {
      const auto group = with_algorithm(world, {.algorithm = algorithm});
      testing::verify(testing::sums_in_rank_order(*group, SumOrder::ranks), "not in rank order");
      testing::verify(!testing::sums_in_rank_order(*group, SumOrder::any), "{} adds in rank order", name(algorithm));
    }
  });
}

TEST_CASE("on equal links an algorithm takes the time of its formula") {
  constexpr double alpha = 3e-5, beta = 2e-9, gamma = 1e-9;
  constexpr std::int64_t bytes = 840 * 1024;  // a multiple of every number of ranks
  const Links links = uniform(alpha, beta);
  for (const int n : {2, 3, 4, 5, 6, 7, 8}) {
    CAPTURE(n);
    const CollectiveSpec all_reduce = spec_of(CollectiveKind::all_reduce, n),
                         scatter = spec_of(CollectiveKind::reduce_scatter, n),
                         gather = spec_of(CollectiveKind::all_gather, n),
                         broadcast = spec_of(CollectiveKind::broadcast, n);
    const double m = bytes, part = m * (n - 1) / n, hops = n - 1, rounds = std::ceil(std::log2(n));
    const auto takes = [&](Algorithm algorithm, const CollectiveSpec& spec, double expected) {
      CHECK_MESSAGE(simulated(algorithm, spec, links, bytes, gamma) == doctest::Approx(expected),
                    std::string(name(algorithm)), " ", comm::name(spec.kind));
    };
    takes(Algorithm::ring, all_reduce, 2 * hops * (alpha + beta * m / n) + gamma * part);
    takes(Algorithm::ring, scatter, hops * (alpha + beta * m / n) + gamma * part);
    takes(Algorithm::ring, gather, hops * (alpha + beta * m / n));
    takes(Algorithm::ring, broadcast, hops * (alpha + beta * m / n) + beta * part);  // n pieces through n - 1 hops
    takes(Algorithm::exact, all_reduce, 2 * alpha + (2 * beta + gamma) * part);
    takes(Algorithm::exact, scatter, alpha + (beta + gamma) * part);
    takes(Algorithm::exact, gather, alpha + beta * part);
    takes(Algorithm::exact, spec_of(CollectiveKind::all_to_all, n), alpha + beta * part);
    if ((n & (n - 1)) != 0) continue;  // a tree with fewer leaves takes less
    takes(Algorithm::tree, all_reduce, rounds * (2 * alpha + (2 * beta + gamma) * m));
    takes(Algorithm::tree, broadcast, rounds * (alpha + beta * m));
    takes(Algorithm::halving, all_reduce, 2 * rounds * alpha + (2 * beta + gamma) * part);
    takes(Algorithm::halving, scatter, rounds * alpha + (beta + gamma) * part);
    takes(Algorithm::halving, gather, rounds * alpha + beta * part);
    takes(Algorithm::halving, spec_of(CollectiveKind::all_to_all, n), rounds * (alpha + beta * m / 2));
  }
}

TEST_CASE("two levels send a part of the bytes over slow links") {
  Links links = uniform(1e-6, 1e-10);
  links.ranks_per_node = 4;
  links.between = {.latency = 1e-5, .seconds_per_byte = 1e-8};
  constexpr std::int64_t bytes = 8 << 20;
  const CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, 8, 4);
  const double m = bytes, slow = 2 * (1e-5 + 1e-8 * m / 8), fast = 2 * 3 * (1e-6 + 1e-10 * m / 4);
  CHECK(simulated(Algorithm::hierarchical, spec, links, bytes) == doctest::Approx(slow + fast));
  CHECK(simulated(Algorithm::ring, spec, links, bytes) > 2 * (slow + fast));
}

TEST_CASE("links: ports, shared uplinks, rails and cables are each used by one message at a time") {
  constexpr std::int64_t bytes = 1000;
  Links links = uniform(0.5, 1e-3);  // a message takes a second, and half of one more to arrive
  links.ranks_per_node = 2;
  const auto arrivals = [&](const std::vector<std::pair<int, int>>& messages) {
    Network network(links);
    std::vector<double> times;
    for (const auto& [from, to] : messages) times.push_back(network.deliver(from, to, bytes, 0).arrives);
    return times;
  };
  using Times = std::vector<double>;
  CHECK(arrivals({{0, 1}, {1, 0}}) == Times{1.5, 1.5});  // both directions
  CHECK(arrivals({{0, 2}, {0, 4}}) == Times{1.5, 2.5});  // one sender
  CHECK(arrivals({{0, 4}, {2, 4}}) == Times{1.5, 2.5});  // one receiver
  CHECK(arrivals({{0, 2}, {1, 3}}) == Times{1.5, 1.5});  // a port for each rank
  CHECK(arrivals({{0, 1}, {0, 2}}) == Times{1.5, 1.5});  // within the node there are others
  links.oversubscription = 2;                            // two ranks share the bandwidth of one
  CHECK(arrivals({{0, 2}, {1, 3}}) == Times{1.5, 2.5});
  links.oversubscription = 1;
  links.topology = Links::Topology::rail;
  CHECK(arrivals({{0, 2}})[0] == 1.5);
  CHECK(arrivals({{0, 3}})[0] == 2.0);  // by way of rank 1: two latencies
  links.topology = Links::Topology::torus;
  links.ranks_per_node = 1;
  links.torus = {4, 2};
  CHECK(arrivals({{0, 1}})[0] == 1.5);
  CHECK(arrivals({{0, 3}})[0] == 1.5);                   // round the ring
  CHECK(arrivals({{0, 2}})[0] == 2.0);                   // two cables
  CHECK(arrivals({{0, 6}})[0] == 2.5);                   // two in one dim, one in the other
  CHECK(arrivals({{0, 2}, {1, 2}}) == Times{2.0, 2.5});  // the second cable is in use
}

TEST_CASE("a message that waits leaves ports to others until it begins") {
  constexpr std::int64_t bytes = 1000;
  Links links = uniform(0, 1e-3);  // a message takes a second
  links.topology = Links::Topology::torus;
  links.torus = {8};
  // Half-way round a ring: two messages share it in each direction. So the eight of a round take two seconds, whoever
  // is first.
  std::vector<int> senders(8);
  std::iota(senders.begin(), senders.end(), 0);
  for (int order = 0; order < 100; ++order) {
    Network network(links);
    double last = 0;
    for (const int from : senders) last = std::max(last, network.deliver(from, (from + 4) % 8, bytes, 0).arrives);
    CHECK(last == doctest::Approx(2));
    for (int k = 0; k < 1 + order % 3; ++k) std::next_permutation(senders.begin(), senders.end());
    std::rotate(senders.begin(), senders.begin() + 1 + order % 5, senders.end());
  }
  Network network(links);
  CHECK(network.deliver(0, 2, bytes, 0).arrives == doctest::Approx(1));
  CHECK(network.deliver(1, 3, 4 * bytes, 0).arrives == doctest::Approx(5));   // waits for the cable from 1 to 2
  CHECK(network.deliver(2, 3, bytes, 0).arrives == doctest::Approx(1));       // done before that one begins
  CHECK(network.deliver(2, 3, bytes, 0.5).arrives == doctest::Approx(6));     // not done before
  CHECK(network.deliver(6, 7, bytes, 0.25).arrives == doctest::Approx(1.5));  // sent at 0.5: time does not run back
  CHECK(simulated(Algorithm::halving, spec_of(CollectiveKind::reduce_scatter, 8), links, 8 * bytes) < 18);
}

TEST_CASE("operations that are made of others are counted once, and what the rank does not wait for is not exposed") {
  using Seconds = std::chrono::duration<double>;
  constexpr double latency = 0.02;
  Links links = instant(1);
  links.between.latency = latency;
  const auto network = std::make_shared<Network>(links);
  std::atomic<bool> receives{false};
  run_thread_ranks(4, 1, testing::patience, [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto group = with_algorithm(world, {.algorithm = Algorithm::ring, .network = network});
    const Tensor x = Tensor::zeros({4000});
    for (const Launch launch : {Launch::lazy, Launch::background}) {
      const auto start = std::chrono::steady_clock::now();
      const CommunicationTimes before = CommunicationClock::current()->read();
      Work sum = group->all_reduce(x, ReduceOp::sum, launch, SumOrder::any);
      if (launch == Launch::background) testing::eventually([&] { return sum.done(); });
      const auto wait = std::chrono::steady_clock::now();
      sum.wait();
      const CommunicationTimes times = CommunicationClock::current()->read() - before;
      const auto end = std::chrono::steady_clock::now();
      const double all = Seconds(end - start).count(), waited = Seconds(end - wait).count();
      testing::verify(times.seconds >= latency && times.seconds <= all, "{} s in {} s", times.seconds, all);
      testing::verify(times.exposed_seconds <= std::min(waited, times.seconds + 1e-9),
                      "{} s exposed of {} s, waited {} s", times.exposed_seconds, times.seconds, waited);
    }
    // A message's time on artificial links is communication. It is sent when the receiver waits for it.
    const auto& page = watch::Beacon::current()->pages()->page(1);
    const CommunicationTimes before = CommunicationClock::current()->read();
    if (world->rank() == 1) receives = true;
    if (world->rank() == 0) {
      const auto waits = [&] {
        const auto shown = page.waiting.read();
        return receives && shown && shown->record > 0;
      };
      testing::verify(testing::eventually(waits), "rank 1 does not wait");
      group->send(x, 1, 0).wait();
    }
    if (world->rank() != 1) return;
    group->recv(x, 0, 0).wait();
    const CommunicationTimes times = CommunicationClock::current()->read() - before;
    testing::verify(times.exposed_seconds >= latency, "{} s exposed", times.exposed_seconds);
  });
}

TEST_CASE("a group that an algorithm cannot serve is refused, with what to do") {
  const auto refused = [](int ranks, const AlgorithmOptions& options) {
    return thrown_by([&] {
      run_thread_ranks(ranks, 1, testing::patience,
                       [&](const std::shared_ptr<ProcessGroup>& world) { with_algorithm(world, options); });
    });
  };
  CHECK(says(refused(3, {.algorithm = Algorithm::halving}), "halving needs a power of two, and the group has 3 ranks"));
  CHECK(says(refused(3, {.algorithm = Algorithm::hierarchical, .network = std::make_shared<Network>(instant(2))}),
             "the group has 2 on one and 1 on another"));
}

}  // namespace algorithms_test
