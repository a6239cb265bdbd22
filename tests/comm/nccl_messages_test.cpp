// Messages between GPUs over the fake NCCL of fake_nccl.h: guarantees that NCCL's own sends and receives do not give.
#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "tests/comm/device_support.h"
#include "tests/comm/fake_machine.h"
#include "tests/comm/patience.h"
#include "tests/comm/suite.h"

using namespace trireme;
using namespace std::chrono_literals;
using trireme::testing::error_of;
using trireme::testing::Group;
using trireme::testing::Machine;
using trireme::testing::on_device;
using trireme::testing::says;

namespace {

float* floats(const Tensor& x) { return static_cast<float*>(x.device_address()); }

/// Waits until all kernels launched so far have ended.
void finish(testing::FakeNccl& api) {
  std::promise<void> end;
  api.compute([&] { end.set_value(); });
  end.get_future().wait();
}

}  // namespace

TEST_CASE("nccl messages overtake those with other tags, and wait for those without recv") {
  Machine machine;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const Group group = machine.group(world);
    const int other = 1 - group->rank();
    for (int tag = 0; tag < 5; ++tag)
      group->send(on_device({1000 + tag}, 10.0 * group->rank() + tag), other, tag).wait();
    for (const int tag : {3, 4, 0, 2, 1}) {  // 0 to 2 have come before 3, and have no recv yet
      const Tensor y = on_device({1000 + tag}, -1.0);
      group->recv(y, other, tag).wait();
      for (std::int64_t i = 0; i < y.count(); ++i)
        testing::verify(floats(y)[i] == 10.0F * static_cast<float>(other) + static_cast<float>(tag), "tag {}: {}", tag,
                        floats(y)[i]);
    }
  });
  CHECK(machine.told == 0);
  CHECK(machine.fabric->communicators() == 0);
}

// The host runs ahead: it queues a kernel that writes, a send, a recv, and a kernel that reads what was received. Only
// then do the GPUs begin.
TEST_CASE(
    "an nccl message comes after the kernels before it and before those after its wait; no host waits for a GPU") {
  Machine machine;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const auto api = machine.library(world->rank(), testing::Compute::queued);
    const Group group = machine.group(world, api);
    const int other = 1 - group->rank();
    const Tensor x = on_device({1000}, -1.0), y = on_device({1000}, -1.0);
    std::promise<void> gate;
    std::atomic<int> wrong{0};
    api->compute([open = gate.get_future().share(), to = floats(x), rank = world->rank()] {
      open.wait();
      std::fill_n(to, 1000, static_cast<float>(rank + 5));
    });
    group->send_final(x, other, 7).wait();
    Work arrival = group->recv(y, other, 7);
    arrival.wait();
    testing::verify(!arrival.done(), "done before the kernels it comes after");
    api->compute([&wrong, from = floats(y), expected = static_cast<float>(other + 5)] {
      for (int i = 0; i < 1000; ++i) wrong += from[i] == expected ? 0 : 1;
    });
    world->barrier();  // no host has waited for a GPU so far
    gate.set_value();
    finish(*api);
    testing::verify(wrong == 0, "{} wrong values", wrong.load());
    testing::verify(arrival.done(), "not done after its results were read");
  });
  CHECK(machine.told == 0);
}

// Kernels use the tensor of each recv before the recv. Those that use `a` come after the arrival of `b`, although the
// message for `a` was sent first. Both messages are sent long before the kernels begin: each must wait for the kernels
// before its recv, and must not hold up the other.
TEST_CASE("nccl messages wait for the kernels before their recvs, without a deadlock") {
  Machine machine;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const auto api = machine.library(world->rank(), testing::Compute::queued);
    const Group group = machine.group(world, api);
    const int other = 1 - group->rank();
    const Tensor x = on_device({300}, 1.0), a = on_device({300}, 0.0), b = on_device({300}, 0.0);
    std::vector<float> seen;
    const auto look_at = [&](const Tensor& y) {
      api->compute([&seen, from = floats(y)] { seen.push_back(from[299]); });
    };
    group->send_final(x, other, 1);
    group->send_final(x, other, 2);
    std::promise<void> gate;
    api->compute([open = gate.get_future().share()] { open.wait(); });
    look_at(b);
    group->recv(b, other, 2).wait();
    look_at(b);
    api->compute([from = floats(b), to = floats(a)] { std::fill_n(to, 300, from[0] + 1.0F); });
    look_at(a);
    group->recv(a, other, 1).wait();
    look_at(a);
    world->barrier();
    std::this_thread::sleep_for(20ms);  // a message that does not wait would arrive now
    gate.set_value();
    finish(*api);
    testing::verify(seen == std::vector<float>{0, 1, 2, 1}, "saw {}", fmt::join(seen, ", "));
  });
}

// Rounds of messages among all ranks. Each rank mixes its sends and recvs at random and waits in a random order;
// kernels fill and read the tensors, and collectives come in between. There is no deadlock as long as a send does not
// wait for its recv.
TEST_CASE("nccl messages in any order, among kernels and collectives") {
  struct Planned {
    int from, to, tag;
    std::int64_t count;
  };
  for (const unsigned seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    constexpr int ranks = 3, rounds = 12;
    std::mt19937 common(seed);
    std::vector<std::vector<Planned>> plan(rounds);
    for (auto& round : plan)
      for (int i = 0; i < 14; ++i)
        round.push_back({static_cast<int>(common() % ranks), static_cast<int>(common() % ranks),
                         static_cast<int>(common() % 3), static_cast<std::int64_t>(common() % 5 == 0 ? 0 : 700)});
    Machine machine;
    run_thread_ranks(ranks, 1, testing::patience, [&](const Group& world) {
      const auto api = machine.library(world->rank(), testing::Compute::queued);
      const Group group = machine.group(world, api);
      const int me = group->rank();
      std::mt19937 own(100 * seed + static_cast<unsigned>(me));
      std::vector<Tensor> keep;  // the fake does not keep memory for queued kernels
      std::atomic<int> wrong{0};
      const auto value = [](std::size_t round, std::size_t i) { return static_cast<float>(100 * round + i); };
      for (std::size_t r = 0; r < plan.size(); ++r) {
        // The length depends on the tag only, so that in a round all messages of one sender, receiver and tag are
        // alike.
        std::vector<std::function<void()>> sends, recvs;
        std::vector<std::pair<Work, std::function<void()>>> arrivals;
        for (std::size_t i = 0; i < plan[r].size(); ++i) {
          const Planned& m = plan[r][i];
          const std::int64_t count = plan[r][static_cast<std::size_t>(m.tag)].count;
          if (m.from == me)
            sends.push_back([&, i, m, count, r] {
              keep.push_back(on_device({count}, -1.0));
              api->compute([to = floats(keep.back()), count, v = value(r, i)] { std::fill_n(to, count, v); });
              group->send_final(keep.back(), m.to, m.tag);
            });
          if (m.to == me)
            recvs.push_back([&, i, m, count, r] {
              keep.push_back(on_device({count}, -2.0));
              const Tensor y = keep.back();
              arrivals.emplace_back(group->recv(y, m.from, m.tag), [&, y, v = value(r, i)] {
                api->compute([&wrong, from = floats(y), count = y.count(), v] {
                  for (std::int64_t k = 0; k < count; ++k) wrong += from[k] == v ? 0 : 1;
                });
              });
            });
        }
        while (!sends.empty() || !recvs.empty()) {  // each list in its order, the two merged at random
          auto& list = sends.empty() || (!recvs.empty() && own() % 2 == 0) ? recvs : sends;
          list.front()();
          list.erase(list.begin());
        }
        std::shuffle(arrivals.begin(), arrivals.end(), own);
        for (auto& [work, read] : arrivals) {
          work.wait();
          read();
        }
        if (r % 3 == 0) {  // one without internal buffers, which the fake would not keep
          keep.push_back(on_device({500}, 1.0));
          group->broadcast(keep.back(), static_cast<int>(r) % ranks).wait();
        }
      }
      finish(*api);
      testing::verify(wrong == 0, "{} wrong values", wrong.load());
    });
    CHECK(machine.told == 0);
    CHECK(machine.fabric->communicators() == 0);
  }
}

// If the watching thread waited for the thread that queues the collective, it would not queue the message that the
// other ranks wait for before they join the collective.
TEST_CASE("a first nccl message gets through while its sender connects for a collective") {
  Machine machine;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const Group group = machine.group(world);
    const Tensor x = on_device({40}, 1.0), y = on_device({30000}, 2.0);  // a large one broadcasts another way
    if (group->rank() == 0) group->send(x, 1, 7).wait();
    if (group->rank() == 1) group->recv(x, 0, 7).wait();
    group->broadcast(y, 0).wait();
  });
  CHECK(machine.told == 0);
}

TEST_CASE("an nccl recv is found done whatever came before it, and whoever took its announcement") {
  Machine machine;
  const auto poll = [](Work& work) { testing::verify(testing::eventually([&] { return work.done(); }), "never done"); };
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const Group group = machine.group(world);
    if (group->rank() == 0) {
      for (const int tag : {1, 2, 3, 1, 2}) group->send(on_device({10}, 1.0), 1, tag).wait();
      return;
    }
    const Tensor x = on_device({10}, 0.0);
    Work second = group->recv(x, 0, 2);
    poll(second);  // the message before it has no recv yet
    Work first = group->recv(x, 0, 1);
    poll(first);
    Work again = group->recv(x, 0, 1), last = group->recv(x, 0, 2);
    again.wait();  // also takes the announcement of the third message
    poll(last);
    group->recv(x, 0, 3).wait();
  });
  CHECK(machine.told == 0);
}

TEST_CASE("what was sent last arrives though the sender's group ends") {
  Machine machine;
  machine.fabric = std::make_shared<testing::Fabric>(testing::Sends::buffered);
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const Tensor x = on_device({1000}, 3.0);
    {
      const Group group = machine.group(world);
      const auto pair = group->subgroup({0, 1}, "pair");
      if (group->rank() == 0) {
        pair->send(on_device({10}, 1.0), 1, 7).wait();  // connects the two
        pair->send(x, 1, 7).wait();
      } else {
        const Tensor y = on_device({1000}, 0.0);
        pair->recv(on_device({10}, 0.0), 0, 7).wait();
        std::this_thread::sleep_for(50ms);
        pair->recv(y, 0, 7).wait();
        testing::verify(floats(y)[999] == 3.0F, "got {}", floats(y)[999]);
      }
    }
    world->barrier();
  });
  CHECK(machine.told == 0);
}

TEST_CASE("ranks that differ about an nccl message are told so") {
  Machine machine;
  const Error error = error_of(machine, 2, [](ProcessGroup& world) {
    if (world.rank() == 0) world.send(on_device({40}, 1.0), 1, 3).wait();
    if (world.rank() == 1) world.recv(on_device({41}, 1.0), 0, 3).wait();
    world.barrier();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error, "group 'world', tag 3: rank 0 sent 40 f32, rank 1 expected 41 f32; make both sides agree"));
}

TEST_CASE("an nccl message that stays on the sender's GPU is named by who waits for it") {
  Machine machine;
  machine.deadline = 300ms;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const auto api = machine.library(world->rank(), testing::Compute::queued);
    std::promise<void> gate;
    const Tensor x = on_device({40}, 1.0);
    {
      const Group group = machine.group(world, api);
      if (world->rank() == 0) {
        api->compute([open = gate.get_future().share()] { open.wait(); });  // a kernel that does not end in time
        group->send_final(x, 1, 3).wait();
      } else {
        Work arrival = group->recv(x, 0, 3);
        arrival.wait();
        testing::eventually([&] { return machine.told > 0; });
        CHECK_THROWS_AS(arrival.wait(), Error);
      }
      world->barrier();
      gate.set_value();
    }
  });
  CHECK(machine.told >= 1);
  CAPTURE(machine.problem);
  CHECK(machine.problem.find("message of 40 f32 with tag 3 from rank 0 (world rank 0) of group 'world': rank 1 (world "
                             "rank 1) waited 0.3 s; it was sent, and has not left the sender's GPU") !=
        std::string::npos);
}

TEST_CASE("an nccl message that nobody receives is an error at its group's end") {
  Machine machine;
  machine.deadline = 200ms;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    {
      const Group group = machine.group(world);
      if (world->rank() == 0) group->send(on_device({40}, 1.0), 1, 3).wait();
    }
    world->barrier();
  });
  CHECK(machine.told == 1);
  CAPTURE(machine.problem);
  CHECK(machine.problem.find("message of 40 f32 with tag 3 to rank 1 (world rank 1) of group 'world': rank 0 (world "
                             "rank 0) waited 0.2 s; it has not been received when the group ends") !=
        std::string::npos);
}

TEST_CASE("a rank's own error comes out though its nccl messages are under way") {
  Machine machine;
  const Error error = error_of(machine, 2, [](ProcessGroup& world) {
    if (world.rank() == 0) {
      world.send(on_device({40}, 1.0), 1, 3).wait();
      fail(ExitCode::numerical, "loss", "loss is nan");
    }
    const Work missing = world.recv(on_device({40}, 0.0), 0, 4);
    CHECK_THROWS_AS(world.barrier(), Error);  // of the host: until that error is known, for it must be the first
    Work(missing).wait();
  });
  CHECK(error.code() == ExitCode::numerical);
  CHECK(machine.fabric->communicators() == 0);
}
