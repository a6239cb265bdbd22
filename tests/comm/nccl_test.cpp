// NcclGroup over the fake NCCL of fake_nccl.h: NCCL itself is not called.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>

#include "parallel/comm/nccl/group.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/nccl/operation.h"
#include "parallel/comm/verifying_group.h"
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
using trireme::testing::thrown_by;

TEST_CASE("nccl groups pass the suite, with tensors on the device and on the host") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    Machine machine;
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience, [&](const Group& world) {
      const Group group = machine.group(world);
      testing::check_all(*group, Device::cuda);
      testing::check_messages(*group);
      testing::check_subgroups(*group);
    }));
    CHECK(machine.told == 0);
    CHECK(machine.fabric->communicators() == 0);
  }
}

TEST_CASE("nccl groups sum in rank order: the host group's bits") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    Machine machine;
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience, [&](const Group& world) {
      testing::check_same_bits(*world, *machine.group(world));
    }));
  }
}

TEST_CASE("nccl groups that may sum in any order: by NCCL where the caller allows it, in rank order elsewhere") {
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    Machine machine;
    machine.fastest = SumOrder::any;
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience, [&](const Group& world) {
      const Group group = machine.group(world);
      testing::check_any_order(*group, Device::cuda);
      testing::check_same_bits(*world, *group);
      testing::check_bits(*group, Device::cuda);
      testing::verify(group->size() == 1 || group->fastest_order() == SumOrder::any, "the group has no other order");
      const bool like_ranks = testing::sums_in_rank_order(*group, SumOrder::any, Device::cuda);
      testing::verify(like_ranks == (ranks <= 2), "NCCL's sums and those in rank order: the same bits is {}",
                      like_ranks);
      testing::check_subgroups(*verifying(group), Device::cuda);
    }));
    CHECK(machine.told == 0);
  }
}

TEST_CASE("ranks that allow different orders are told so") {
  Machine machine;
  machine.fastest = SumOrder::any;
  const Error error = error_of(machine, 2, [](ProcessGroup& world) {
    const SumOrder order = world.rank() == 0 ? SumOrder::ranks : SumOrder::any;
    world.all_reduce(on_device({64}, 1.0), ReduceOp::sum, Launch::lazy, order).wait();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error, "called all_reduce(sum of 64 f32 in any order)"));
}

TEST_CASE("nccl groups can be verified") {
  Machine machine;
  const Error error = thrown_by([&] {
    run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
      const Group group = verifying(machine.group(world));
      testing::check_subgroups(*group, Device::cuda);
      group->all_reduce(on_device({world->rank() + 5}, 1.0)).wait();
    });
  });
  CHECK(says(error, "[verify] operation #1 of group 'world' differs between ranks"));
}

// The host runs ahead: it queues a write, a broadcast, a gather and the reads, and only then does the GPU begin.
TEST_CASE("an operation comes after the kernels before it and before those after its wait; the host waits for none") {
  Machine machine;
  run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
    const auto api = machine.library(world->rank(), testing::Compute::queued);
    const Group group = machine.group(world, api);
    const Tensor x = on_device({1000}, -1.0), y = on_device({2, 1000}, -1.0);
    auto* const in = static_cast<float*>(x.device_address());
    auto* const out = static_cast<float*>(y.device_address());
    std::promise<void> gate;
    std::atomic<int> wrong{0};
    api->compute([open = gate.get_future().share(), in, rank = world->rank()] {
      open.wait();
      std::fill_n(in, 1000, static_cast<float>(rank + 5));
    });
    Work first = group->broadcast(x, 1);
    first.wait();
    api->compute([in] {
      for (int i = 0; i < 1000; ++i) in[i] += 1.0F;
    });
    Work second = group->all_gather(x, y, Launch::background);
    testing::verify(!first.done() && !second.done(), "done before the kernels it comes after");
    second.wait();
    std::promise<void> end;
    api->compute([&] {
      for (int i = 0; i < 2000; ++i) wrong += out[i] == 7.0F ? 0 : 1;
      end.set_value();
    });
    world->barrier();  // no host has waited for its GPU so far
    gate.set_value();
    end.get_future().wait();
    testing::verify(wrong == 0, "{} wrong values", wrong.load());
    testing::verify(first.done() && second.done(), "not done after its results were read");
  });
  CHECK(machine.told == 0);
}

TEST_CASE("time counts from an operation's turn, not from its call") {
  Machine machine;
  const auto api = machine.library(0);
  comm::NcclOperation operation(*api, {});
  using Stage = comm::NcclOperation::Stage;
  const comm::Clock::time_point start{};
  CHECK(operation.advance(false, false, start, 2s) == Stage::queued);
  CHECK(operation.advance(false, false, start + 1h, 2s) == Stage::queued);
  CHECK(operation.advance(true, false, start + 1h, 2s) == Stage::under_way);
  CHECK(operation.advance(true, false, start + 1h + 2s, 2s) == Stage::under_way);
  CHECK(operation.advance(true, false, start + 1h + 3s, 2s) == Stage::late);
  CHECK(operation.advance(true, true, start + 1h + 3s, 2s) == Stage::over);
}

TEST_CASE("the deadline of an nccl operation names it, its group and who is missing") {
  Machine machine;
  machine.deadline = 300ms;
  const auto join = [](ProcessGroup& world) {
    const std::vector<int> members = {3, 1, 0};
    return world.rank() == 2 ? nullptr : world.subgroup(members, "odd[x=1]");
  };
  std::atomic<bool> late{false};
  const Error error = error_of(machine, 4, [&](ProcessGroup& world) {
    const Group group = join(world);
    if (world.rank() != 0) {  // until rank 0 has given up
      testing::eventually([&] { return late.load(); });
      return;
    }
    const Tensor x = on_device({12345}, 1.0);
    try {
      group->all_reduce(x, ReduceOp::sum, Launch::background).wait();
    } catch (const Error&) {
      CHECK_THROWS_AS(world.all_reduce(x), Error);  // every group of this rank is lost, with the same error
      late = true;
      throw;
    }
  });
  CHECK(error.code() == ExitCode::retryable);
  CHECK(says(error,
             "all_reduce(sum of 12345 f32) #1 of group 'odd[x=1]': rank 2 (world rank 0) waited 0.3 s; not arrived: "
             "rank 0 (world rank 3), rank 1 (world rank 1)"));
  CHECK(machine.told == 1);
  CHECK(machine.fabric->communicators() == 0);
}

TEST_CASE("ranks that cannot be seen are reported as such") {
  Machine machine;
  machine.deadline = 200ms;
  machine.boards.hide(1);
  std::atomic<bool> late{false};
  const Error error = error_of(machine, 2, [&](ProcessGroup& world) {
    if (world.rank() == 1) {
      testing::eventually([&] { return late.load(); });
      return;
    }
    try {
      world.broadcast(on_device({8}, 1.0), 1).wait();
    } catch (const Error&) {
      late = true;
      throw;
    }
  });
  CHECK(says(error, "every rank seen from here has called it; on other nodes, not seen from here: rank 1"));
}

TEST_CASE("nccl operations that differ between ranks are found while they hang") {
  Machine machine;
  const Error error = error_of(machine, 3, [](ProcessGroup& world) {
    const Tensor x = on_device({64}, 1.0), y = on_device({3, 64}, 1.0);
    if (world.rank() == 2) world.broadcast(x, 0).wait();
    if (world.rank() != 2) world.all_gather(x, y).wait();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error, "operation #1 of group 'world' differs between ranks: rank"));
  CHECK(says(error, "called broadcast(64 f32, root 0)"));
  CHECK(says(error, "called all_gather(64 f32)"));
}

TEST_CASE("an error that nccl reports ends the wait, and names the operation") {
  Machine machine;
  const Error error = error_of(machine, 2, [&](ProcessGroup& world) {
    const Tensor x = on_device({64}, 1.0);
    if (world.rank() == 0) world.all_reduce(x).wait();
    if (world.rank() == 0) return;
    machine.fabric->break_all("remote process exited");
    testing::eventually([&] { return machine.told > 0; });
  });
  CHECK(error.code() == ExitCode::retryable);
  CHECK(says(error, "remote process exited"));
}

TEST_CASE("a rank's own error comes out, and the others' waits end") {
  Machine machine;
  machine.deadline = 1s;
  const Error error = error_of(machine, 3, [](ProcessGroup& world) {
    const Work pending = world.all_reduce(on_device({100000}, 1.0), ReduceOp::sum, Launch::background);
    if (world.rank() == 1) fail(ExitCode::numerical, "loss", "loss is nan");
    CHECK_THROWS_AS(world.barrier(), Error);  // of the host: until that error is known, for it must be the first
    Work(pending).wait();
    world.all_reduce(on_device({100000}, 1.0)).wait();
  });
  CHECK(error.code() == ExitCode::numerical);
  CHECK(machine.fabric->communicators() == 0);
}

TEST_CASE("two ranks on one GPU are refused by name") {
  Machine machine;
  const Error error = thrown_by([&] {
    run_thread_ranks(3, 1, testing::patience, [&](const Group& world) {
      machine.group(world, machine.library(world->rank() == 2 ? 0 : world->rank()));
    });
  });
  CHECK(error.code() == ExitCode::usage);
  CHECK(says(error, "rank 0 (world rank 0), rank 2 (world rank 2) share one GPU (GPU 0); expected one GPU for each"));
}

TEST_CASE("a communicator that never forms is an error, too") {
  Machine machine;
  const Error error = thrown_by([&] {
    run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
      const auto api = machine.library(world->rank());
      const Group group = machine.group(world, api);
      if (world->rank() == 0) machine.fabric->break_all("unhandled system error");
      world->barrier();
      group->subgroup({0, 1}, "pair");
    });
  });
  CHECK(says(error, "unhandled system error"));
}

TEST_CASE("which GPU a process takes") {
  if (!under_mpi_launcher()) CHECK(launched_gpu(8) == 0);  // ranks are threads
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
  CHECK(launched_gpu(8) == 3);
  CHECK(launched_gpu(1) == 0);
  CHECK(launched_gpu(2) == 1);  // shared with process 1
  unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
  CHECK(says(thrown_by([] { launched_gpu(2); }), "which process of its node"));
  unsetenv("OMPI_COMM_WORLD_SIZE");
}
