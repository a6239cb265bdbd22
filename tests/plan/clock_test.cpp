#include "ops/plan/clock.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

using namespace trireme::plan;

namespace {

Process worker(Clock& clock, double seconds, int threads, int node, std::vector<double>& ends) {
  co_await clock.work(seconds, threads, node);
  ends.push_back(clock.now());
}

Process sleeper(Clock& clock, double seconds, std::vector<double>& ends) {
  co_await clock.sleep(seconds);
  ends.push_back(clock.now());
}

Process reader(Clock& clock, Mailbox<int>& box, int count, std::vector<std::pair<double, int>>& read) {
  for (int i = 0; i < count; ++i) {
    while (box.empty()) co_await box.more();
    read.emplace_back(clock.now(), box.take());
  }
}

Process writer(Clock& clock, Mailbox<int>& box) {
  box.put(1);
  box.put(2);
  co_await clock.sleep(3);
  box.put(3);
}

Process holder(Clock& clock, Mailbox<int>& box, std::shared_ptr<int> held) {
  static_cast<void>(clock);
  while (box.empty()) co_await box.more();
  *held = box.take();
}

}  // namespace

TEST_CASE("threads that fit on the cores of a node work at full speed") {
  Clock clock(2);
  std::vector<double> ends;
  worker(clock, 2, 1, 0, ends);
  worker(clock, 1, 1, 0, ends);
  worker(clock, 4, 2, 1, ends);  // another node
  clock.run();
  CHECK(ends == std::vector<double>{1, 2, 4});
}

TEST_CASE("more threads than cores share them") {
  Clock clock(1);
  std::vector<double> ends;
  worker(clock, 1, 1, 0, ends);
  worker(clock, 2, 1, 0, ends);
  sleeper(clock, 2.5, ends);
  clock.run();
  CHECK(ends == std::vector<double>{2, 2.5, 3});  // half the speed until the first ends
}

TEST_CASE("a clock without cores gives everybody full speed") {
  Clock clock(0);
  std::vector<double> ends;
  for (int i = 0; i < 3; ++i) worker(clock, 1, 8, 0, ends);
  clock.run();
  CHECK(ends == std::vector<double>{1, 1, 1});
}

TEST_CASE("a mailbox is read in the order in which it was filled, when there is something") {
  Clock clock(0);
  Mailbox<int> box(clock);
  std::vector<std::pair<double, int>> read;
  reader(clock, box, 3, read);
  writer(clock, box);
  clock.run();
  CHECK(read == std::vector<std::pair<double, int>>{{0, 1}, {0, 2}, {3, 3}});
}

TEST_CASE("coroutines that wait when the clock is gone end with it") {
  const auto held = std::make_shared<int>(0);
  {
    Clock clock(0);
    Mailbox<int> box(clock);
    holder(clock, box, held);
    clock.run();
    CHECK(held.use_count() == 2);
  }
  CHECK(held.use_count() == 1);
}

namespace {
Process sender(Clock& clock, double seconds, int port, std::vector<double>& ends) {
  co_await clock.transmit(seconds, port);
  ends.push_back(clock.now());
}
}  // namespace

TEST_CASE("transfers share a port, whatever the cores") {
  for (int cores : {0, 1}) {
    Clock clock(cores);
    std::vector<double> ends;
    sender(clock, 1, 0, ends);
    sender(clock, 2, 0, ends);
    sender(clock, 2.5, 1, ends);  // another port
    worker(clock, 2, 1, 0, ends);
    clock.run();
    CHECK(ends == std::vector<double>{2, 2, 2.5, 3});
  }
}
