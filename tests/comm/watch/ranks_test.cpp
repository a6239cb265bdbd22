// Ranks that are threads: a lost rank is named, whichever rank waits for it and in which operation; slow ranks are
// waited for.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <latch>

#include "core/heartbeat.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/watch/report.h"
#include "parallel/comm/watch/watchdog.h"
#include "tests/comm/scene_time.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace std::chrono_literals;
using testing::says;
using testing::SceneTime;

namespace {

/// Missing ranks sleep here until another rank's wait has ended, however long a busy machine takes.
struct Away {
  std::atomic<bool> noticed = false;  // not a latch: several ranks may notice at once, and a latch counts below 0
  void sleep() {
    SceneTime::leave();
    noticed.wait(false);
  }
  template <class F>
  void until_noticed(const F& wait) {
    try {
      wait();
    } catch (...) {
      noticed = true;
      noticed.notify_all();
      throw;
    }
  }
};

constexpr double deadline = 0.5;

/// Runs the ranks with a watchdog whose time passes only while all are in their places.
void run_in_scene(int ranks, SceneTime& time, const std::function<void(ProcessGroup&)>& body) {
  const WatchOptions options{.timeout = ProcessGroup::Deadline(deadline), .now = [&] { return time.look(); }};
  run_thread_ranks(ranks, 1, options, [&](const std::shared_ptr<ProcessGroup>& world) {
    time.join(watch::Beacon::current()->pages());
    body(*world);
  });
}

struct Lost {
  std::string place, what;
  ExitCode code = ExitCode::ok;
};

Lost lost_in(int ranks, const std::function<void(ProcessGroup&)>& body) {
  SceneTime time;
  try {
    run_in_scene(ranks, time, body);
  } catch (const watch::LostRank& lost) { return {lost.place(), lost.what(), lost.code()}; }
  FAIL("expected a rank to be lost");
  return {};
}

/// The calling rank computes until others have waited so long for it.
void compute(const SceneTime& time, double seconds, bool beating) {
  SceneTime::leave();
  for (const double start = time.seconds(); time.seconds() < start + seconds;)
    if (beating) Heartbeat::beat();
  SceneTime::come_back();
}

}  // namespace

TEST_CASE("the missing rank is named, with its step, phase, call site and what is waited for") {
  Away away;
  const Lost lost = lost_in(3, [&](ProcessGroup& world) {
    watch::Beacon& beacon = *watch::Beacon::current();
    beacon.set_place(fmt::format("rank {} (dp={},tp=0,pp=0)", world.rank(), world.rank()), SceneTime::joined);
    beacon.begin_step(12);
    const auto group = world.subgroup({2, 1, 0}, "dp[tp=0,pp=0]");
    group->all_reduce(Tensor::zeros({64})).wait();
    const watch::PhaseScope phase(Phase::backward);
    const CallSite site("blocks.2.mlp");
    if (world.rank() == 1) return away.sleep();
    away.until_noticed([&] { group->all_reduce(Tensor::zeros({12345}, DType::bf16)).wait(); });
  });
  CHECK(lost.code == ExitCode::retryable);
  CHECK(lost.place == "rank 1 (dp=1,tp=0,pp=0) step 12");
  CHECK(says(lost.what, "no sign of life for "));
  CHECK(says(lost.what,
             " s; its thread sleeps (state S); it was in backward at blocks.2.mlp; its last operation is "
             "all_reduce(sum of 64 f32) #1 of group 'dp[tp=0,pp=0]', ended "));
  CHECK(says(lost.what,
             "waits for it in all_reduce(sum of 12345 bf16) #2 of group 'dp[tp=0,pp=0]', of which the lost rank has "
             "begun #1"));
}

TEST_CASE("who holds everyone up is named, not whom the first waits for") {
  Away away;
  const Lost lost = lost_in(3, [&](ProcessGroup& world) {
    if (world.rank() == 2) return away.sleep();
    away.until_noticed([&] { world.recv(Tensor::zeros({7}), world.rank() + 1, 42).wait(); });
  });
  CHECK(lost.place == "rank 2");
  CHECK(says(lost.what, "rank 1 waits for it in recv(7 f32, tag 42) from rank 2 in group 'world'"));
}

TEST_CASE("several missing ranks, and a wait on a communication thread") {
  Away away;
  const Lost lost = lost_in(4, [&](ProcessGroup& world) {
    if (world.rank() % 2 == 1) return away.sleep();
    away.until_noticed([&] { world.broadcast(Tensor::zeros({100000}), 1, Launch::background).wait(); });
  });
  CHECK((lost.place == "rank 1" || lost.place == "rank 3"));  // whichever was silent first
  CHECK(says(lost.what,
             "in broadcast(100000 f32, root 1) #1 of group 'world', of which the lost rank has begun #0; so does 1 "
             "other rank;"));
}

TEST_CASE("ranks that wait for one another in different operations are out of step") {
  const Lost lost = lost_in(2, [&](ProcessGroup& world) {
    const auto pair = world.subgroup({0, 1}, "pair");
    if (world.rank() == 0) world.recv(Tensor::zeros({7}), 1, 3).wait();
    pair->barrier();
    world.send(Tensor::zeros({7}), 0, 3).wait();
  });
  CHECK(lost.code == ExitCode::desync);
  CHECK(says(lost.what,
             "rank 0 in recv(7 f32, tag 3) from rank 1 in group 'world' at the program waits for rank 1; rank 1 in "
             "barrier() #1 of group 'pair' at the program waits for rank 0"));
}

TEST_CASE("a rank that computes is waited for, with heartbeats or without") {
  SceneTime time;
  CHECK_NOTHROW(run_in_scene(3, time, [&](ProcessGroup& world) {
    if (world.rank() == 1) compute(time, 4 * deadline, true);
    world.barrier();
  }));
  CHECK_NOTHROW(run_in_scene(2, time, [&](ProcessGroup& world) {
    if (world.rank() == 1) compute(time, 2 * deadline, false);
    world.barrier();
  }));
}

TEST_CASE("ranks that wait for a slow one in different operations are not taken for a ring") {
  SceneTime time;
  CHECK_NOTHROW(run_in_scene(4, time, [&](ProcessGroup& world) {
    const bool is_even = world.rank() % 2 == 0;
    const auto mine = is_even ? world.subgroup({0, 2}, "even") : world.subgroup({1, 3}, "odd");
    if (world.rank() == 3) compute(time, 4 * deadline, true);
    mine->barrier();
    if (world.rank() == 2) world.recv(Tensor::zeros({1}), 1, 0).wait();
    if (world.rank() == 1) world.send(Tensor::zeros({1}), 2, 0).wait();
    world.barrier();
  }));
}

TEST_CASE("a rank thread that does not come back: somebody else is told") {
  std::latch never{1}, told{1};
  std::string place;
  SceneTime time;
  const WatchOptions options{.timeout = ProcessGroup::Deadline(deadline),
                             .on_lost =
                                 [&](const std::exception_ptr& error) {
                                   try {
                                     std::rethrow_exception(error);
                                   } catch (const watch::LostRank& lost) { place = lost.place(); }
                                   told.count_down();
                                   never.count_down();  // a program would end here
                                 },
                             .now = [&] { return time.look(); }};
  CHECK_THROWS_AS(run_thread_ranks(2, 1, options,
                                   [&](const std::shared_ptr<ProcessGroup>& world) {
                                     time.join(watch::Beacon::current()->pages());
                                     if (world->rank() == 0) return world->barrier();
                                     SceneTime::leave();
                                     never.wait();
                                   }),
                  watch::LostRank);
  told.wait();
  CHECK(place == "rank 1");
}

TEST_CASE("a rank that waits for one that it cannot see reports after four timeouts, and a later host after more") {
  watch::RankPage page;
  const auto pages = std::make_shared<watch::RankPages>(std::vector<watch::RankPage*>{&page, nullptr});
  const auto own = std::make_shared<watch::Beacon>(pages, 0);
  const auto seconds_to_report = [&](double later) {
    watch::Beacon::set_current(own);
    std::latch lost{1};
    const auto began = std::chrono::steady_clock::now();
    {
      const watch::Recording record({.what = watch::Record::What::recv});
      const auto missing = [] { return std::vector{1}; };
      watch::Wait wait(record, missing);
      const watch::Blocked blocked;
      wait.lasts();
      watch::Watchdog watchdog(pages, 100ms, [&](const std::exception_ptr&) { lost.count_down(); });
      watchdog.report_unseen_later(later);
      watchdog.add(own);
      lost.wait();
    }
    watch::Beacon::set_current(nullptr);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  CHECK(seconds_to_report(0) >= 0.4);
  CHECK(seconds_to_report(0.6) >= 1.0);
}

TEST_CASE("a process whose job another one ends is told; one that ends it itself is not") {
  for (const int failing : {0, 1}) {
    const auto pages = std::make_shared<watch::RankPages>(2);
    const auto here = std::make_shared<watch::Beacon>(pages, 0), other = std::make_shared<watch::Beacon>(pages, 1);
    std::latch told{1};
    watch::Watchdog watchdog(
        pages, 30s, [](const std::exception_ptr&) {},
        [&] {
          if (!told.try_wait()) told.count_down();
        });
    watchdog.add(here);
    std::this_thread::sleep_for(400ms);
    CHECK_FALSE(told.try_wait());
    (failing == 0 ? here : other)->set_state(watch::RankState::failed);
    if (failing == 1) {
      told.wait();
    } else {
      std::this_thread::sleep_for(600ms);
      CHECK_FALSE(told.try_wait());
    }
    watchdog.remove(*here);
  }
}
