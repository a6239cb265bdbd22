// The team: every part runs once, whichever thread computes it; barriers of members; teams of several ranks side by
// side.
#include "core/team.h"
#include "tests/support/team.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

using namespace trireme;
using testing::TeamOf;

TEST_CASE("every element is visited once, for any team and length") {
  for (const int team : {1, 2, 3, 7}) {
    const TeamOf size(team);
    for (const std::int64_t n : {0, 1, 2, 5, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 100}) {
        std::vector<int> visits(static_cast<std::size_t>(n));
        std::atomic<int> calls = 0;
        parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
          ++calls;
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        CAPTURE(team);
        CAPTURE(n);
        CHECK(visits == std::vector<int>(static_cast<std::size_t>(n), 1));
        CHECK(calls <= team);
        if (n > 0) CHECK(calls <= std::max<std::int64_t>(1, n / grain));
      }
    }
  }
}

TEST_CASE("job after job: no part of an old one is done in a new one") {
  const TeamOf size(3);
  for (int job = 0; job < 20'000; ++job) {
    const int parts = 1 + job % 3;
    int done[3] = {0, 0, 0};
    parallel_parts(parts, [&](int part, int) { done[part] += job + 1; });
    for (int part = 0; part < 3; ++part) REQUIRE(done[part] == (part < parts ? job + 1 : 0));
  }
}

TEST_CASE("a part that nobody has begun is taken over") {
  const TeamOf size(2);
  parallel_parts(2, [](int, int) {});  // the team exists from here on
  std::atomic<bool> release = false;
  std::atomic<int> done = 0;
  // The part that begins first holds its member up. The other member must complete the other part.
  std::thread later([&] {
    while (done < 1) std::this_thread::yield();
    release = true;
  });
  std::atomic<int> begun = 0;
  parallel_parts(2, [&](int, int) {
    if (begun++ == 0) {
      while (!release) std::this_thread::yield();
    }
    ++done;
  });
  later.join();
  CHECK(done == 2);
}

TEST_CASE("barriers of a team: what each member wrote before is seen by all after") {
  for (const int members : {2, 3, 5}) {
    const TeamOf size(members);
    std::vector<int> written(static_cast<std::size_t>(members));
    std::atomic<int> wrong = 0;
    for (int job = 1; job <= 200; ++job) {
      parallel_team(members, [&](int member, int all) {
        for (int round = 0; round < 5; ++round) {
          written[static_cast<std::size_t>(member)] = 10 * job + round;
          team::barrier(all);
          for (const int value : written) wrong += value != 10 * job + round;
          team::barrier(all);
        }
      });
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("parts do not split further") {
  const TeamOf size(2);
  std::atomic<int> inner_parts = 0;
  parallel_parts(2, [&](int, int) {
    CHECK(threads() == 1);
    parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++inner_parts; });
  });
  CHECK(inner_parts == 2);
}

TEST_CASE("ranks that are threads have teams of their own") {
  std::atomic<int> sum = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&sum, rank] {
      set_threads(1 + rank % 3);
      for (int job = 0; job < 500; ++job)
        parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(sum == 4 * 500 * 10);
}
