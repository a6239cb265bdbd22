// The team: every part runs once, whichever thread computes it; barriers of members; teams of several ranks side by
// side.
#include "core/team.h"
#include "tests/support/team.h"

#include <doctest/doctest.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
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

#if !defined(__SANITIZE_THREAD__)  // it delays the signals of a thread that waits
namespace {

std::atomic<bool> held{false}, released{false};

void hold_thread(int /*signal*/) {
  held = true;
  while (!released) {}
}

}  // namespace

TEST_CASE("a part that nobody has begun is taken over") {
  struct sigaction hold = {}, before = {};
  hold.sa_handler = hold_thread;
  hold.sa_flags = SA_RESTART;
  sigemptyset(&hold.sa_mask);
  REQUIRE(::sigaction(SIGUSR1, &hold, &before) == 0);
  held = released = false;
  bool by_one_member = false;
  std::thread rank([&] {  // its team has these two members only
    set_threads(2);
    pthread_t other{};
    parallel_team(2, [&](int member, int) {
      if (member == 1) other = ::pthread_self();
    });
    // The signal's handler keeps the other member from its part, as a busy machine would.
    if (::pthread_kill(other, SIGUSR1) != 0) return;
    while (!held) std::this_thread::yield();
    // If the job waits for the other member, it gets it after half an hour, and the check below fails.
    std::promise<void> over;
    std::thread release([&] {
      over.get_future().wait_for(std::chrono::minutes(30));
      released = true;
    });
    std::thread::id computed_by[2];
    parallel_parts(2, [&](int part, int) { computed_by[part] = std::this_thread::get_id(); });
    over.set_value();
    release.join();
    const std::thread::id mine = std::this_thread::get_id();
    by_one_member = computed_by[0] == mine && computed_by[1] == mine;
  });
  rank.join();
  CHECK(by_one_member);
  REQUIRE(::sigaction(SIGUSR1, &before, nullptr) == 0);
}
#endif

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

/// Computes when the main thread's team is gone; if that crashes, so does this program.
struct AtExit {
  ~AtExit() {
    set_threads(2);
    parallel_for(100, 1, [](std::int64_t, std::int64_t) {});
    parallel_team(threads(), [](int, int) {});
  }
};
const AtExit at_exit;

TEST_CASE("parts do not split further") {
  const TeamOf size(2);
  std::atomic<int> inner_parts = 0;
  parallel_parts(2, [&](int, int) {
    CHECK(threads() == 1);
    parallel_for(100, 1, [&](std::int64_t, std::int64_t) { ++inner_parts; });
  });
  CHECK(inner_parts == 2);
}

#if !defined(__SANITIZE_THREAD__)  // it does not allow threads in a child of a process with threads
TEST_CASE("a child that fork() makes has a team of its own") {
  const TeamOf size(2);
  const auto sum_of_parts = [] {
    std::atomic<int> sum = 0;
    parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
    return sum.load();
  };
  CHECK(sum_of_parts() == 100);
  const pid_t child = fork();
  if (child == 0) _exit(sum_of_parts() == 100 ? 0 : 1);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
#endif

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
