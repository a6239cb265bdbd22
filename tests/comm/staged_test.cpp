// Staged groups, for tensors on a device: tested on the emulated device, with copies only and no kernels.
#include "parallel/comm/staged_group.h"

#include <doctest/doctest.h>

#include "cuda/runtime/emulated.h"
#include "parallel/comm/verifying_group.h"
#include "tests/comm/device_support.h"
#include "tests/comm/patience.h"
#include "tests/comm/suite.h"

using namespace trireme;
using trireme::testing::on_device;
using trireme::testing::says;
using trireme::testing::thrown_by;

namespace {

using Group = std::shared_ptr<ProcessGroup>;

Error error_of(int ranks, ProcessGroup::Deadline deadline, const std::function<void(ProcessGroup&)>& body) {
  return thrown_by([&] { run_thread_ranks(ranks, 1, deadline, [&](const Group& world) { body(*staged(world)); }); });
}

}  // namespace

TEST_CASE("staged groups pass the suite, with tensors on the device and on the host") {
  const cuda::ScopedEmulatedDevice device;
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience, [](const Group& world) {
      const Group group = staged(world);
      testing::check_all(*group, Device::cuda);
      testing::check_messages(*group);
      testing::check_subgroups(*group);
    }));
  }
}

TEST_CASE("each operation has the host group's bits, and leaves alone what that leaves alone") {
  const cuda::ScopedEmulatedDevice device;
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    CHECK_NOTHROW(run_thread_ranks(ranks, 1, testing::patience,
                                   [](const Group& world) { testing::check_same_bits(*world, *staged(world)); }));
  }
}

TEST_CASE("host copies are in pinned memory, which the next operation gets again") {
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, testing::patience, [](const Group& world) {
    const Group group = staged(world);
    const Tensor x = on_device({40000}, 1.0);
    std::int64_t after_first = 0;
    for (int step = 0; step < 3; ++step) {
      group->all_reduce(x).wait();
      group->all_gather(view::slice(x, 0, 0, 100), on_device({2, 100}, 0.0)).wait();
      const std::int64_t pinned = MemoryPool::current()->pinned_bytes();
      testing::verify(pinned >= 160000, "{} bytes are pinned, expected those of 40000 floats and more", pinned);
      if (step == 0) after_first = pinned;
      testing::verify(pinned == after_first, "{} bytes are pinned, after the first step {} were", pinned, after_first);
    }
  });
}

TEST_CASE("an operation takes up what an earlier one of its group has yet to write") {
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, testing::patience, [](const Group& world) {
    const Group group = staged(world);
    for (const Launch launch : {Launch::lazy, Launch::background}) {
      const Tensor x = on_device({40000}, 1.0), y = on_device({2, 40000}, 0.0);
      {
        const Work a = group->all_reduce(x, ReduceOp::sum, launch), b = group->all_gather(x, y, launch);
        const Work c = group->all_reduce(view::select(y, 0, 1), ReduceOp::sum, launch);
      }
      testing::verify(x.to(Device::cpu).data<float>()[39999] == 2.0F, "the sum is not 2");
      const Tensor all = y.to(Device::cpu);
      testing::verify(all.data<float>()[39999] == 2.0F && all.data<float>()[40000] == 4.0F,
                      "{} and {}, expected 2 and 4", all.data<float>()[39999], all.data<float>()[40000]);
    }
  });
}

TEST_CASE("a dropped operation waits for those before it, not for those after it") {
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, testing::patience, [](const Group& world) {
    const Group group = staged(world);
    const Tensor x = on_device({7}, 1.0), y = on_device({7}, 2.0), z = on_device({7}, 3.0);
    Work first = group->all_reduce(x), second = group->all_reduce(y), third = group->all_reduce(z);
    second = Work();
    testing::verify(first.done() && !third.done(), "first {}, third {}", first.done(), third.done());
    testing::verify(x.to(Device::cpu).data<float>()[6] == 2.0F, "the first result is not there");
    testing::verify(y.to(Device::cpu).data<float>()[6] == 4.0F, "the second result is not there");
  });
}

TEST_CASE("a background operation ends while the caller does something else; done() has brought the result") {
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, testing::patience, [](const Group& world) {
    const Group group = staged(world);
    const Tensor x = on_device({1000}, 1.0);
    Work work = group->all_reduce(x, ReduceOp::sum, Launch::background);
    testing::verify(testing::eventually([&] { return work.done(); }), "nothing ran it");
    testing::verify(x.to(Device::cpu).data<float>()[999] == 2.0F, "the sum is not there");
  });
}

TEST_CASE("host copies count as communication and are given back") {
  const cuda::ScopedEmulatedDevice device;
  run_thread_ranks(2, 1, testing::patience, [](const Group& world) {
    const Group group = staged(world);
    const Tensor x = on_device({50000}, 1.0);
    group->all_reduce(x).wait();
    const MemoryUse use = MemoryPool::current()->use(MemoryCategory::communication);
    testing::verify(use.live == 0 && use.peak >= 200000, "{} bytes live, {} at most", use.live, use.peak);
  });
}

TEST_CASE("verifying goes above and below staging") {
  const cuda::ScopedEmulatedDevice device;
  for (const bool above : {true, false}) {
    CAPTURE(above);
    const auto both = [&](const Group& world) { return above ? verifying(staged(world)) : staged(verifying(world)); };
    run_thread_ranks(3, 1, testing::patience, [&](const Group& world) {
      const Group group = both(world);
      testing::verify(group->verifies() && group->subgroup(world->members(), "sub")->verifies(), "a check was lost");
      testing::check_bits(*group, Device::cuda);
      testing::check_messages(*group, Device::cuda);
      testing::check_subgroups(*group, Device::cuda);
    });
    const Error error = thrown_by([&] {
      run_thread_ranks(2, 1, testing::patience, [&](const Group& world) {
        both(world)->all_reduce(on_device({world->rank() + 5}, 1.0)).wait();
      });
    });
    CHECK(says(error, "[verify] operation #1 of group 'world' differs between ranks"));
  }
}

TEST_CASE("errors are the host group's") {
  const cuda::ScopedEmulatedDevice device;
  Error error = error_of(3, testing::patience, [](ProcessGroup& world) {
    Work pending = world.all_reduce(on_device({100000}, 1.0), ReduceOp::sum, Launch::background);
    if (world.rank() == 1) fail(ExitCode::numerical, "loss", "loss is nan");
    world.recv(on_device({3}, 0.0), 1, 0).wait();
  });
  CHECK(error.code() == ExitCode::numerical);
  CHECK(says(error, "loss is nan"));

  error = error_of(2, testing::patience, [](ProcessGroup& world) {
    if (world.rank() == 0) world.all_reduce(on_device({64}, 1.0)).wait();
    if (world.rank() == 1) world.all_reduce(on_device({65}, 1.0)).wait();
  });
  CHECK(error.code() == ExitCode::desync);
  CHECK(says(error,
             "rank 0 (world rank 0) called all_reduce(sum of 64 f32) in the program, rank 1 (world rank 1) called"));

  error = error_of(2, testing::patience, [](ProcessGroup& world) {  // dropped: the world still learns of it
    if (world.rank() == 0) world.all_reduce(on_device({3}, 1.0));
  });
  CHECK(error.code() == ExitCode::desync);

  error = error_of(2, testing::patience, [](ProcessGroup& world) {
    world.all_gather(on_device({3}, 1.0), Tensor::zeros({world.size(), 3})).wait();
  });
  CHECK(says(error, "all_gather"));
  CHECK(says(error, "cuda"));

  error = error_of(2, testing::patience, [](ProcessGroup& world) {
    const Tensor y = on_device({2, 4}, 0.0);
    world.all_to_all(y, y).wait();
  });
  CHECK(says(error, "x and y are the same memory"));
}
