// find_faulty_ranks(): which ranks are at fault, given what was observed. No clocks and no threads.
#include "parallel/comm/watch/faulty_ranks.h"

#include <doctest/doctest.h>

using namespace trireme::watch;

namespace {

constexpr double timeout = 30;

RankSigns working() { return {.visible = true}; }
RankSigns silent(double seconds) {
  return {.visible = true, .since_sign_of_life = seconds, .since_heartbeat = seconds};
}
RankSigns waiting(std::vector<int> ranks, double seconds, std::uint64_t operation = 1) {
  return {.visible = true,
          .blocked = true,
          .since_sign_of_life = seconds,
          .since_heartbeat = seconds,
          .operation = operation,
          .waits_for = std::move(ranks)};
}

}  // namespace

TEST_CASE("a rank that works is waited for as long as it takes") {
  CHECK(find_faulty_ranks(0, {waiting({1}, 1000), working()}, timeout).fault == WaitFault::none);
  CHECK(find_faulty_ranks(0, {waiting({1}, 1000), silent(29)}, timeout).fault == WaitFault::none);
  // Also at the end of a chain, and when others of the chain have waited for long.
  CHECK(find_faulty_ranks(0, {waiting({1}, 1000), waiting({2}, 1000, 2), working()}, timeout).fault == WaitFault::none);
  CHECK(find_faulty_ranks(0, {waiting({1, 2}, 1000), working(), waiting({1}, 1000)}, timeout).fault == WaitFault::none);
}

TEST_CASE("a silent rank is lost at the timeout, and named by all who wait for it through others") {
  const std::vector<RankSigns> ranks = {waiting({1}, 31), waiting({2}, 31, 2), silent(30), working()};
  for (const int waiter : {0, 1}) {
    const FaultyRanks faulty = find_faulty_ranks(waiter, ranks, timeout);
    CHECK(faulty.fault == WaitFault::stopped);
    CHECK(faulty.ranks == std::vector{2});
  }
  CHECK(find_faulty_ranks(3, ranks, timeout).fault == WaitFault::none);
  // Another rank that still works does not help: the wait needs both.
  CHECK(find_faulty_ranks(0, {waiting({1, 2}, 31), working(), silent(30)}, timeout).ranks == std::vector{2});
}

TEST_CASE("processor time without a heartbeat is believed for twenty timeouts") {
  RankSigns busy = working();
  busy.since_heartbeat = 599;
  CHECK(find_faulty_ranks(0, {waiting({1}, 700), busy}, timeout).fault == WaitFault::none);
  busy.since_heartbeat = 600;
  CHECK(find_faulty_ranks(0, {waiting({1}, 700), busy}, timeout).fault == WaitFault::stopped);
}

TEST_CASE("a rank that is stopped while it waits is told from one that waits") {
  RankSigns stopped = waiting({0}, 31);
  CHECK(find_faulty_ranks(0, {waiting({1}, 31), stopped}, timeout).fault == WaitFault::none);
  stopped.since_ran = 30;
  const FaultyRanks faulty = find_faulty_ranks(0, {waiting({1}, 31), stopped}, timeout);
  CHECK(faulty.fault == WaitFault::stopped);
  CHECK(faulty.ranks == std::vector{1});
}

TEST_CASE("a rank without a process is lost at once; one that ended or failed is not") {
  RankSigns gone = silent(0.2);
  gone.gone = true;
  CHECK(died({working(), gone}) == std::vector{1});
  CHECK(find_faulty_ranks(0, {waiting({1}, 0.3), gone}, timeout).fault == WaitFault::died);
  gone.ended = true;
  CHECK(died({working(), gone}).empty());
  gone.ended = false;
  gone.failed = true;
  CHECK(died({working(), gone}).empty());
  CHECK(find_faulty_ranks(0, {waiting({1}, 1000), gone}, timeout).fault == WaitFault::none);  // it ends the job itself
}

TEST_CASE("ranks whose work is done wait for one another at the end of the job, and nothing is wrong with that") {
  RankSigns leaving = waiting({1}, 0.1), left = waiting({0}, 0.1);
  leaving.ended = left.ended = true;
  CHECK(find_faulty_ranks(0, {leaving, left}, timeout).fault == WaitFault::none);
  left.waits_for = {};  // seen later than the other, which still shows that it waits
  CHECK(find_faulty_ranks(0, {leaving, left}, timeout).fault == WaitFault::none);
  CHECK(find_faulty_ranks(0, {leaving, silent(30)}, timeout).fault == WaitFault::stopped);  // a rank that never comes
  RankSigns alone = waiting({1}, 1000);  // an operation that the other did not call before its end
  CHECK(find_faulty_ranks(0, {alone, left}, timeout).fault != WaitFault::none);
}

TEST_CASE("ranks that wait for one another: in different operations, or in one that does not move") {
  const auto ring = [](double first, double second, std::uint64_t operation) {
    return find_faulty_ranks(0, {waiting({1}, first, 1), waiting({0}, second, operation)}, timeout);
  };
  CHECK(ring(31, 31, 2).fault == WaitFault::deadlocked);
  CHECK(ring(31, 31, 2).ranks == std::vector{0, 1});
  CHECK(ring(119, 200, 1).fault == WaitFault::none);
  CHECK(ring(120, 200, 1).fault == WaitFault::stalled);
  CHECK(ring(31, 5, 2).fault == WaitFault::none);  // the second began to wait a moment ago
  CHECK(ring(5, 31, 2).fault == WaitFault::none);
}

TEST_CASE("what is on other nodes gets four timeouts") {
  const RankSigns unseen;
  CHECK(find_faulty_ranks(0, {waiting({1}, 119), unseen}, timeout).fault == WaitFault::none);
  const FaultyRanks faulty = find_faulty_ranks(0, {waiting({1}, 120), unseen}, timeout);
  CHECK(faulty.fault == WaitFault::unseen);
  CHECK(faulty.ranks == std::vector{1});
  CHECK(find_faulty_ranks(0, {waiting({1, 2}, 120), unseen, working()}, timeout).fault == WaitFault::none);
}

TEST_CASE("a wait of a communication thread alone does not make its rank a waiting one") {
  RankSigns computes = waiting({1}, 0);
  computes.blocked = false;
  CHECK(find_faulty_ranks(0, {computes, waiting({0}, 100)}, timeout).fault == WaitFault::none);
  CHECK(find_faulty_ranks(1, {computes, waiting({0}, 100)}, timeout).fault == WaitFault::none);
  CHECK(find_faulty_ranks(0, {computes, silent(31)}, timeout).fault == WaitFault::stopped);
}

TEST_CASE("a rank that waits for a thread of its own works, unless that takes four timeouts") {
  RankSigns itself = waiting({}, 119, 0);
  CHECK(find_faulty_ranks(0, {waiting({1}, 200), itself}, timeout).fault == WaitFault::none);
  itself.since_sign_of_life = 120;
  CHECK(find_faulty_ranks(0, {waiting({1}, 200), itself}, timeout).ranks == std::vector{1});
}

TEST_CASE(
    "a rank that waits for a thread of its own says so itself, after four timeouts, also when nobody waits for it") {
  RankSigns itself = waiting({}, 119, 0);
  CHECK(find_faulty_ranks(0, {itself}, timeout).fault == WaitFault::none);
  itself.since_sign_of_life = 120;
  const FaultyRanks faulty = find_faulty_ranks(0, {itself}, timeout);
  CHECK(faulty.fault == WaitFault::stopped);
  CHECK(faulty.ranks == std::vector{0});
  itself.ended = true;
  CHECK(find_faulty_ranks(0, {itself}, timeout).fault == WaitFault::none);
}

TEST_CASE("a ring is believed only when all have confirmed that they still wait") {
  RankSigns old = waiting({0}, 31, 2);
  old.confirmed = false;
  CHECK(find_faulty_ranks(0, {waiting({1}, 31), old}, timeout).fault == WaitFault::none);
}
