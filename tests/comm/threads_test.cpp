// Process groups among threads: the suite of suite.h, lazy and background operations, and errors on any rank.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/parallel_for.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/times.h"
#include "parallel/comm/watch/beacon.h"
#include "tests/comm/patience.h"
#include "tests/comm/suite.h"
#include "tests/support/errors.h"

using namespace trireme;
using testing::says;
using testing::thrown_by;

namespace {

/// Runs the body and returns the error run_thread_ranks rethrows; fails the test when there is none.
Error error_of(int ranks, ProcessGroup::Deadline deadline, const std::function<void(ProcessGroup&)>& body) {
  return thrown_by(
      [&] { run_thread_ranks(ranks, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) { body(*world); }); });
}

}  // namespace

TEST_CASE("threads pass the suite") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience,
                                   [](const std::shared_ptr<ProcessGroup>& world) { testing::check_all(*world); }));
  }
}

TEST_CASE("bf16 sums over micro-batches need an f32 accumulator") {
  run_thread_ranks(2, 1, testing::patience,
                   [](const std::shared_ptr<ProcessGroup>& world) { testing::check_bf16_between_operations(*world); });
}

TEST_CASE("each rank thread has its own pool and team") {
  std::array<MemoryPool*, 3> pools{};
  run_thread_ranks(3, 2, testing::patience, [&](const std::shared_ptr<ProcessGroup>& world) {
    pools[static_cast<std::size_t>(world->rank())] = MemoryPool::current().get();
    testing::verify(threads() == 2, "a team of {}, expected 2", threads());
    world->barrier();
  });
  CHECK((pools[0] != pools[1] && pools[1] != pools[2] && pools[0] != pools[2]));
}

TEST_CASE("a background operation runs while the caller does something else") {
  run_thread_ranks(2, 1, testing::patience, [](const std::shared_ptr<ProcessGroup>& world) {
    Tensor x = Tensor::full({1000}, 1.0);
    Work work = world->all_reduce(x, ReduceOp::sum, Launch::background);
    testing::verify(testing::eventually([&] { return work.done(); }), "nothing ran it");
    testing::verify(x.data<float>()[999] == 2.0F, "the sum is {}", x.data<float>()[999]);
  });
}

TEST_CASE("a lazy operation waits for its caller, and then takes all before it along") {
  run_thread_ranks(2, 1, testing::patience, [](const std::shared_ptr<ProcessGroup>& world) {
    Tensor x = Tensor::full({10}, 1.0), y = Tensor::full({10}, 2.0);
    Work first = world->all_reduce(x), second = world->all_reduce(y);
    testing::verify(!first.done() && !second.done(), "done before anyone waited");
    second.wait();
    testing::verify(first.done(), "the operation before it is not done");
  });
}

TEST_CASE("waiting for a rank that has ended is an error at once") {
  Error error = error_of(3, testing::patience, [](ProcessGroup& world) {
    const auto group = world.subgroup({0, 1, 2}, "all");
    if (world.rank() == 1) return;
    group->barrier();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error, "barrier() #1 of group 'all'"));
  CHECK(says(error, "rank 1 (world rank 1)"));
  CHECK(says(error, "already ended"));
  error = error_of(2, testing::patience, [](ProcessGroup& world) {
    if (world.rank() == 1) world.recv(Tensor::zeros({7}), 0, 42).wait();
  });
  CHECK(says(error, "not sent by: rank 0 (world rank 0), of which one has already ended"));
  error = error_of(2, testing::patience, [](ProcessGroup& world) {  // a group the other rank never makes
    if (world.rank() == 1) world.subgroup({1, 0}, "pair")->barrier();
  });
  CHECK(says(error, "group 'pair'"));
}

TEST_CASE("time under way is counted on any thread, time waited only on the rank's own") {
  using Seconds = std::chrono::duration<double>;
  run_thread_ranks(2, 1, testing::patience, [](const std::shared_ptr<ProcessGroup>& world) {
    constexpr Seconds late{0.05};
    std::uint64_t last = 0;  // the record of the operation before
    const auto join_late = [&] {
      const watch::RankPage& page = watch::Beacon::current()->pages()->page(0);
      const auto waits = [&] {
        const auto shown = page.waiting.read();
        return shown && shown->record > last && (last = shown->record) > 0;
      };
      testing::verify(testing::eventually(waits), "rank 0 does not wait");
      std::this_thread::sleep_for(late);
    };
    struct Spent {
      CommunicationTimes times;
      Seconds in_wait;  // what the call of wait() took
    };
    const auto spent = [&](Launch launch, bool until_done) {
      const CommunicationTimes before = CommunicationClock::current()->read();
      if (world->rank() == 1) join_late();
      Work sum = world->all_reduce(Tensor::zeros({1000}), ReduceOp::sum, launch);
      if (until_done) testing::eventually([&] { return sum.done(); });
      const auto start = std::chrono::steady_clock::now();
      sum.wait();
      return Spent{CommunicationClock::current()->read() - before, std::chrono::steady_clock::now() - start};
    };
    const Spent waited = spent(Launch::lazy, false), hidden = spent(Launch::background, true);
    if (world->rank() != 0) return;
    CHECK(waited.times.seconds >= late.count());
    CHECK(waited.times.exposed_seconds >= late.count());
    CHECK(hidden.times.seconds >= late.count());
    CHECK(hidden.times.exposed_seconds <= hidden.in_wait.count());  // not what it took before
  });
}

TEST_CASE("operations that differ between ranks are found at once, both sides named") {
  const auto desync = [](const std::function<void(ProcessGroup&)>& body) {
    const Error error = error_of(3, testing::patience, body);
    CHECK(error.code() == ExitCode::desync);
    return error;
  };
  Error error = desync([](ProcessGroup& world) {
    if (world.rank() == 2) {
      const CallSite site("saving");
      world.barrier();
    } else {
      const CallSite site("blocks.2.mlp");
      world.all_reduce(Tensor::zeros({64})).wait();
    }
  });
  CHECK(says(error,
             "operation #1 of group 'world' differs between ranks: rank 0 (world rank 0) called all_reduce(sum of 64 "
             "f32) in blocks.2.mlp, rank 2 (world rank 2) called barrier() in saving; every rank must"));
  error =
      desync([](ProcessGroup& world) { world.all_reduce(Tensor::zeros({world.rank() == 1 ? 50000 : 60000})).wait(); });
  CHECK(says(error,
             "all_reduce(sum of 60000 f32) in the program, rank 1 (world rank 1) called all_reduce(sum of 50000 f32) "
             "in the program"));
  error = desync([](ProcessGroup& world) {
    world.all_reduce(Tensor::zeros({8}, world.rank() == 1 ? DType::bf16 : DType::f16)).wait();
  });
  CHECK(says(error, "all_reduce(sum of 8 f16) in the program, rank 1 (world rank 1) called all_reduce(sum of 8 bf16)"));
  error = desync([](ProcessGroup& world) { world.broadcast(Tensor::zeros({8}), world.rank() == 0 ? 0 : 1).wait(); });
  CHECK(says(error, "broadcast(8 f32, root 0)"));
  error = desync([](ProcessGroup& world) {
    if (world.rank() == 0) world.send(Tensor::zeros({4}), 1, 0).wait();
    if (world.rank() == 1) world.recv(Tensor::zeros({5}), 0, 0).wait();
  });
  CHECK(says(error, "rank 0 sent 4 f32, rank 1 expected 5 f32"));
}

TEST_CASE("when a rank throws, the others' waits end and its own error comes out") {
  struct Custom : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (int way = 0; way < 4; ++way) {
    std::atomic<int> left_by_exception{0};
    CHECK_THROWS_WITH_AS(run_thread_ranks(4, 1, testing::patience,
                                          [&](const std::shared_ptr<ProcessGroup>& world) {
                                            const auto pair = world->subgroup({0, 1, 2, 3}, "all");
                                            Tensor x = Tensor::zeros({way % 2 == 0 ? 10 : 100000});
                                            Work pending = pair->all_reduce(
                                                x, ReduceOp::sum, way < 2 ? Launch::background : Launch::lazy);
                                            if (world->rank() == 2) throw Custom("rank 2 has failed");
                                            try {
                                              if (world->rank() == 3) world->recv(x, 2, 0).wait();
                                              world->barrier();
                                            } catch (...) {
                                              ++left_by_exception;
                                              throw;
                                            }
                                          }),
                         "rank 2 has failed", Custom);
    CHECK(left_by_exception == 3);
  }
  const Error error = error_of(3, testing::patience, [](ProcessGroup& world) {
    if (world.rank() == 1) fail(ExitCode::numerical, "loss", "loss is nan");
    world.barrier();
  });
  CHECK(error.code() == ExitCode::numerical);
  CHECK(says(error, "loss is nan"));
}

TEST_CASE("an error behind a Work that was dropped still comes out") {
  const Error error = error_of(2, testing::patience, [](ProcessGroup& world) {
    if (world.rank() == 0) world.all_reduce(Tensor::zeros({3}));
  });
  CHECK(error.code() == ExitCode::desync);
}

TEST_CASE("operations need not be waited for when the group goes away") {
  run_thread_ranks(2, 1, testing::patience, [](const std::shared_ptr<ProcessGroup>& world) {
    Tensor x = Tensor::full({40000}, 1.0);
    {
      const auto group = world->subgroup({0, 1}, "short");
      const Work a = group->all_reduce(x, ReduceOp::sum, Launch::background), b = group->all_reduce(x);
    }
    testing::verify(x.data<float>()[39999] == 4.0F, "two sums give {}", x.data<float>()[39999]);
  });
}

TEST_CASE("an empty function, a deadline of nothing, and tensors of a forward are refused") {
  const auto message = [](const std::function<void()>& f) { return testing::error_of(f, ExitCode::internal); };
  CHECK(says(message([] { run_thread_ranks(2, 1, testing::patience, nullptr); }),
             "[run_thread_ranks] the function is empty"));
  for (const double deadline : {0.0, -1.0})
    CHECK(says(message([&] { run_thread_ranks(2, 1, ProcessGroup::Deadline(deadline), [](const auto&) {}); }),
               fmt::format("[run_thread_ranks] a deadline of {} s; expected more than 0", deadline)));
  const Tensor y = Tensor::zeros({2});
  Tensor x = Tensor::ones({2});
  int any = 0;  // comm does not know autograd/node.h; that there is a node is enough
  x.set_node(std::shared_ptr<Node>(std::shared_ptr<void>(), reinterpret_cast<Node*>(&any)));
  const std::shared_ptr<ProcessGroup> alone = self_group();
  ProcessGroup& group = *alone;
  for (const std::string& text :
       {message([&] { group.all_reduce(x).wait(); }), message([&] { group.all_gather(x, y).wait(); }),
        message([&] { group.reduce_scatter(x, y).wait(); }), message([&] { group.all_to_all(x, y).wait(); })})
    CHECK(says(text, "x requires a gradient, and collectives are not recorded"));
  CHECK(says(message([&] { group.all_gather(y, x).wait(); }), "[all_gather] y requires a gradient"));
  group.broadcast(x, 0).wait();  // how ranks get equal weights
  group.all_reduce(x.detach()).wait();
}
