// What a dry run records, against what the same program does.
#include "parallel/comm/trace.h"

#include <doctest/doctest.h>

#include <vector>

#include "core/kernels.h"
#include "parallel/comm/dry_group.h"

using namespace trireme;

namespace {

using Kind = Trace::EventKind;

std::vector<Kind> kinds(const Trace& trace) {
  std::vector<Kind> kinds;
  for (const Trace::Event& event : trace.events()) kinds.push_back(event.kind);
  return kinds;
}

}  // namespace

TEST_CASE("a trace lists kernels by what they are, each different call once") {
  Trace trace;
  const DryRun dry(&trace);
  const Tensor a = Tensor::empty({128, 64}), b = Tensor::empty({64, 32});
  Tensor c = Tensor::empty({128, 32});
  for (int i = 0; i < 3; ++i) kernels(Device::cpu).gemm(a, b, c, {});
  kernels(Device::cpu).gemm(a, b, c, {.beta = 1});  // reads c too
  REQUIRE(trace.kernels().size() == 2);
  CHECK(trace.kernels()[0].name == "gemm");
  CHECK(trace.kernels()[0].cost.flops == 2.0 * 128 * 64 * 32);
  CHECK(trace.events().size() == 4);
  CHECK(trace.events()[2].index == 0);
  CHECK(trace.events()[3].index == 1);
}

TEST_CASE("what measures a kernel may let it compute, with its tensors") {
  int steps = 0;
  Trace trace([&](const ProfileEvent&, const std::function<void()>& compute, int step) {
    compute();
    steps += step;
  });
  const DryRun dry(&trace);
  Tensor x = Tensor::full({3}, 2.0), large = Tensor::empty({5000});
  kernels(Device::cpu).fill(large, 7);
  CHECK(large.data<float>()[4999] == 7);
  trace.mark();
  kernels(Device::cpu).unary(Unary::square, x, x);
  CHECK(steps == 1);
}

TEST_CASE("a trace has collectives where they start and where they are waited for") {
  Trace trace;
  const DryRun dry(&trace);
  const std::shared_ptr<ProcessGroup> world = dry_world(4, 1, &trace);
  const std::shared_ptr<ProcessGroup> pair = world->subgroup({1, 3}, "pair");
  const Tensor x = Tensor::empty({1000});
  Work sum = pair->all_reduce(x, ReduceOp::sum, Launch::background);
  sum.wait();
  sum.wait();  // no second time
  world->barrier();
  CHECK(kinds(trace) == std::vector{Kind::start, Kind::wait, Kind::start, Kind::wait});
  const Trace::Transfer& transfer = trace.transfers()[0];
  CHECK(transfer.background);
  CHECK(transfer.bytes == 4000);
  CHECK(transfer.collective.kind == comm::CollectiveKind::all_reduce);
  CHECK(trace.groups()[static_cast<std::size_t>(transfer.group)].members == std::vector<int>{1, 3});
}

TEST_CASE("messages name their peer in the world; an operation that nobody waits for ends when it is dropped") {
  Trace trace;
  const DryRun dry(&trace);
  const std::shared_ptr<ProcessGroup> pair = dry_world(4, 1, &trace)->subgroup({1, 3}, "pair");
  const Tensor x = Tensor::empty({10});
  pair->send(x, 1, 5);
  Work arrival = pair->recv(x, 1, 6);
  arrival.wait();
  { const Work dropped = pair->all_reduce(x); }
  CHECK(kinds(trace) == std::vector{Kind::start, Kind::start, Kind::wait, Kind::start, Kind::wait});
  CHECK(trace.transfers()[0].kind == Trace::TransferKind::send);
  CHECK(trace.transfers()[0].peer == 3);
  CHECK(trace.transfers()[1].tag == 6);
  CHECK(trace.transfers()[1].bytes == 40);
}
