// Process groups among threads: the suite of suite.h, lazy and background operations, and errors on any rank.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/parallel_for.h"
#include "parallel/comm/call_site.h"
#include "parallel/comm/times.h"
#include "tests/comm/suite.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace std::chrono_literals;
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
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, 30s,
                                   [](const std::shared_ptr<ProcessGroup>& world) { testing::check_all(*world); }));
  }
}

TEST_CASE("bf16 sums over micro-batches need an f32 accumulator") {
  run_thread_ranks(2, 1, 30s,
                   [](const std::shared_ptr<ProcessGroup>& world) { testing::check_bf16_between_operations(*world); });
}

TEST_CASE("each rank thread has its own pool and team") {
  std::array<MemoryPool*, 3> pools{};
  run_thread_ranks(3, 2, 10s, [&](const std::shared_ptr<ProcessGroup>& world) {
    pools[static_cast<std::size_t>(world->rank())] = MemoryPool::current().get();
    testing::verify(threads() == 2, "a team of {}, expected 2", threads());
    world->barrier();
  });
  CHECK((pools[0] != pools[1] && pools[1] != pools[2] && pools[0] != pools[2]));
}

TEST_CASE("a background operation runs while the caller does something else") {
  run_thread_ranks(2, 1, 10s, [](const std::shared_ptr<ProcessGroup>& world) {
    Tensor x = Tensor::full({1000}, 1.0);
    Work work = world->all_reduce(x, ReduceOp::sum, Launch::background);
    for (int i = 0; i < 5000 && !work.done(); ++i) std::this_thread::sleep_for(1ms);
    testing::verify(work.done(), "nothing ran it in 5 s");
    testing::verify(x.data<float>()[999] == 2.0F, "the sum is {}", x.data<float>()[999]);
  });
}

TEST_CASE("a lazy operation waits for its caller, and then takes all before it along") {
  run_thread_ranks(2, 1, 10s, [](const std::shared_ptr<ProcessGroup>& world) {
    Tensor x = Tensor::full({10}, 1.0), y = Tensor::full({10}, 2.0);
    Work first = world->all_reduce(x), second = world->all_reduce(y);
    testing::verify(!first.done() && !second.done(), "done before anyone waited");
    second.wait();
    testing::verify(first.done(), "the operation before it is not done");
  });
}

TEST_CASE("waiting for a rank that has ended is an error at once") {
  const auto start = std::chrono::steady_clock::now();
  Error error = error_of(3, 60s, [](ProcessGroup& world) {
    const auto group = world.subgroup({0, 1, 2}, "all");
    if (world.rank() == 1) return;
    group->barrier();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error, "barrier() #1 of group 'all'"));
  CHECK(says(error, "rank 1 (world rank 1)"));
  CHECK(says(error, "already ended"));
  error = error_of(2, 60s, [](ProcessGroup& world) {
    if (world.rank() == 1) world.recv(Tensor::zeros({7}), 0, 42).wait();
  });
  CHECK(says(error, "not sent by: rank 0 (world rank 0), of which one has already ended"));
  error = error_of(2, 60s, [](ProcessGroup& world) {  // a group the other rank never makes
    if (world.rank() == 1) world.subgroup({1, 0}, "pair")->barrier();
  });
  CHECK(says(error, "group 'pair'"));
  CHECK(std::chrono::steady_clock::now() - start < 20s);
}

TEST_CASE("time under way is counted on any thread, time waited only on the rank's own") {
  run_thread_ranks(2, 1, ProcessGroup::Deadline(30), [](const std::shared_ptr<ProcessGroup>& world) {
    const auto late = std::chrono::milliseconds(200);
    const auto spent = [&](Launch launch, bool until_done) {
      const CommunicationTimes before = CommunicationClock::current()->read();
      if (world->rank() == 1) std::this_thread::sleep_for(late);
      Work sum = world->all_reduce(Tensor::zeros({1000}), ReduceOp::sum, launch);
      while (until_done && !sum.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      sum.wait();
      return CommunicationClock::current()->read() - before;
    };
    const CommunicationTimes waited = spent(Launch::lazy, false), hidden = spent(Launch::background, true);
    if (world->rank() != 0) return;
    CHECK(waited.seconds > 0.15);
    CHECK(waited.exposed_seconds > 0.15);
    CHECK(hidden.seconds > 0.15);
    CHECK(hidden.exposed_seconds < 0.1);
  });
}

TEST_CASE("operations that differ between ranks are found at once, both sides named") {
  const auto desync = [](const std::function<void(ProcessGroup&)>& body) {
    const Error error = error_of(3, 20s, body);
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
  const auto start = std::chrono::steady_clock::now();
  for (int way = 0; way < 4; ++way) {
    std::atomic<int> left_by_exception{0};
    CHECK_THROWS_WITH_AS(run_thread_ranks(4, 1, 60s,
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
  CHECK(std::chrono::steady_clock::now() - start < 10s);
  const Error error = error_of(3, 60s, [](ProcessGroup& world) {
    if (world.rank() == 1) fail(ExitCode::numerical, "loss", "loss is nan");
    world.barrier();
  });
  CHECK(error.code() == ExitCode::numerical);
  CHECK(says(error, "loss is nan"));
}

TEST_CASE("an error behind a Work that was dropped still comes out") {
  const Error error = error_of(2, 200ms, [](ProcessGroup& world) {
    if (world.rank() == 0) world.all_reduce(Tensor::zeros({3}));
  });
  CHECK(error.code() == ExitCode::desync);
}

TEST_CASE("operations need not be waited for when the group goes away") {
  run_thread_ranks(2, 1, 10s, [](const std::shared_ptr<ProcessGroup>& world) {
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
  CHECK(says(message([] { run_thread_ranks(2, 1, 3s, nullptr); }), "[run_thread_ranks] the function is empty"));
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
