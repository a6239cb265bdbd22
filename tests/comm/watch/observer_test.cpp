// What counts as a sign of life, and which time counts. The test says how many seconds pass between looks.
#include "parallel/comm/watch/observer.h"

#include <doctest/doctest.h>

#include <thread>

#include "parallel/comm/watch/beacon.h"
#include "parallel/comm/watch/faulty_ranks.h"

using namespace trireme;
using namespace trireme::watch;

namespace {

/// The page of one rank; the test sets what the system says about its thread.
struct Scene {
  std::shared_ptr<RankPages> pages = std::make_shared<RankPages>(1);
  Beacon beacon{pages, 0};
  std::uint64_t first_beat = pages->page(0).beats.fetch_add(1);
  VitalSigns system{.state = 'S'};
  int asked = 0;
  Observer observer{pages, [this](const ThreadId&) {
                      ++asked;
                      return system;
                    }};

  const RankSigns& look(double seconds, int times = 1) {
    for (int i = 0; i < times; ++i) {
      pages->page(0).watchdog_ticks.fetch_add(1);
      observer.look(seconds);
    }
    return observer.signs().front();
  }
};

}  // namespace

TEST_CASE("silence adds up, and a heartbeat ends it") {
  Scene scene;
  scene.look(0.05);
  CHECK(scene.look(0.05, 100).since_sign_of_life == doctest::Approx(5.0));
  scene.pages->page(0).beats.fetch_add(1);
  CHECK(scene.look(0.05).since_sign_of_life == 0);
  CHECK(scene.look(0.05).since_heartbeat == doctest::Approx(0.05));
}

TEST_CASE("time in which the observer did not run does not count") {
  Scene scene;
  scene.look(0.05);
  CHECK(scene.look(600).since_sign_of_life == doctest::Approx(Observer::longest_gap));
}

TEST_CASE("a rank that runs, waits for the processor or the disk, or has had time lives without a heartbeat") {
  Scene scene;
  scene.look(0.05);
  for (const char state : {'R', 'D'}) {
    scene.system.state = state;
    scene.look(0.05, 100);
    CHECK(scene.observer.signs().front().since_sign_of_life < 0.5);
  }
  scene.system.state = 'S';
  for (int i = 0; i < 100; ++i) {
    scene.system.processor_time += 1000;
    scene.look(0.05);
  }
  CHECK(scene.observer.signs().front().since_sign_of_life < 0.5);
  CHECK(scene.observer.signs().front().since_heartbeat > 14);
  scene.system.state = 'T';
  CHECK(scene.look(0.05, 100).since_sign_of_life > 4.5);
}

TEST_CASE("the system is not asked while there are heartbeats") {
  Scene scene;
  for (int i = 0; i < 100; ++i) {
    scene.pages->page(0).beats.fetch_add(1);
    scene.look(0.05);
  }
  CHECK(scene.asked == 0);
}

TEST_CASE("a rank whose process stops while it waits is no longer seen to run; processor time says that it runs") {
  Scene scene;
  Waiting waiting;
  waiting.record = 1;
  waiting.blocked = true;
  waiting.add(3);
  scene.pages->page(0).waiting.write(waiting);
  CHECK(scene.look(0.05, 100).since_ran == 0);
  CHECK(scene.observer.signs().front().blocked);
  CHECK(scene.observer.signs().front().waits_for == std::vector{3});
  for (int i = 0; i < 100; ++i) scene.observer.look(0.05);
  CHECK(scene.observer.signs().front().since_ran > 4.5);
  for (int i = 0; i < 10; ++i) {
    scene.system.processor_time += 1000;
    scene.observer.look(0.05);
  }
  CHECK(scene.observer.signs().front().since_ran < 0.5);
  CHECK(scene.observer.signs().front().since_sign_of_life > 4.5);  // it polls: that is no progress
}

TEST_CASE("somebody's arrival is a sign of life; a rank all of whose peers have come only waits for the processor") {
  Scene scene;
  const auto show = [&](const std::vector<int>& ranks) {
    Waiting waiting;
    waiting.record = 1;
    waiting.blocked = true;
    for (const int rank : ranks) waiting.add(rank);
    scene.pages->page(0).waiting.write(waiting);
  };
  scene.system.state = 'R';
  show({1, 2});
  scene.look(0.05);
  CHECK(scene.look(0.05, 100).since_sign_of_life > 4.5);
  show({2});
  CHECK(scene.look(0.05).since_sign_of_life == 0);
  CHECK(scene.look(0.05, 100).since_sign_of_life > 4.5);
  show({});
  CHECK(scene.look(0.05, 100).since_sign_of_life < 0.5);
  scene.system.state = 'S';
  CHECK(scene.look(0.05, 100).since_sign_of_life > 4.5);
}

TEST_CASE("a process that is gone is told from one that has ended") {
  Scene scene;
  scene.system.state = 0;
  CHECK(scene.look(0.05, 10).gone);
  CHECK_FALSE(scene.observer.signs().front().ended);
  scene.beacon.set_state(RankState::ended);
  CHECK(scene.look(0.05).ended);
}

TEST_CASE("vital signs of this thread, of a thread that does not exist, and of one in another container") {
  std::this_thread::yield();  // the system adds up a thread's time when it may give its core away
  const VitalSigns mine = vital_signs(this_thread());
  CHECK(mine.state == 'R');
  CHECK(mine.processor_time > 0);
  ThreadId nobody = this_thread();
  nobody.thread = 1 << 30;
  CHECK(vital_signs(nobody).gone());
  nobody.space += 1;  // ids of another container mean nothing here
  CHECK_FALSE(vital_signs(nobody).gone());
}

TEST_CASE("what a rank waited for before another one ended must be shown again after that") {
  const auto pages = std::make_shared<RankPages>(2);
  Beacon waiter(pages, 0), other(pages, 1);
  Observer observer(pages, [](const ThreadId&) { return VitalSigns{.state = 'S'}; });
  Waiting waiting{.record = 1, .blocked = true};
  waiting.add(1);
  const auto look = [&](int times) {
    for (int i = 0; i < times; ++i) {
      pages->page(0).waiting.write(waiting);
      pages->page(0).watchdog_ticks.fetch_add(1);
      observer.look(0.05);
    }
    return find_faulty_ranks(0, observer.signs(), 0.5).fault;
  };
  pages->page(1).beats.fetch_add(1);
  look(100);
  REQUIRE(observer.signs()[0].since_sign_of_life > 4);
  pages->page(1).state = RankState::ended;  // the barrier in which rank 0 waited is over, and its page is older
  CHECK(look(1) == WaitFault::none);
  CHECK(look(1) == WaitFault::none);
  CHECK(look(3) != WaitFault::none);  // it still waits, for a rank that has ended
}
