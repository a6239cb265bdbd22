#include "parallel/comm/dry_group.h"

#include <doctest/doctest.h>

#include "core/dry_run.h"
#include "core/memory.h"

using namespace trireme;

namespace dry_group_test {
namespace {

Tensor numbers(std::int64_t count) {
  const Tensor x = Tensor::empty({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) x.data<std::int64_t>()[i] = i + 1;
  return x;
}

std::vector<std::int64_t> of(const Tensor& x) {
  const auto all = x.span<const std::int64_t>();
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("one rank stands for all: what programs look at is as if every rank had the same") {
  const DryRun dry;
  const std::shared_ptr<ProcessGroup> world = dry_world(100000, 70000);
  CHECK(world->rank() == 70000);
  const std::shared_ptr<ProcessGroup> group = world->subgroup({69999, 70000, 70001}, "tp");
  CHECK(group->rank() == 1);

  const Tensor sum = numbers(2), largest = numbers(2), mine = numbers(2), all = numbers(6), part = numbers(2),
               each = numbers(3), got = Tensor::zeros({3}, DType::i64);
  group->all_reduce(sum).wait();
  CHECK(of(sum) == std::vector<std::int64_t>{3, 6});
  group->all_reduce(largest, ReduceOp::max).wait();
  CHECK(of(largest) == std::vector<std::int64_t>{1, 2});
  group->all_gather(mine, all).wait();
  CHECK(of(all) == std::vector<std::int64_t>{1, 2, 1, 2, 1, 2});
  group->reduce_scatter(numbers(6), part).wait();
  CHECK(of(part) == std::vector<std::int64_t>{9, 12});  // of 1 .. 6, its part is 3 and 4
  group->all_to_all(each, got).wait();
  CHECK(of(got) == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("a message is in memory until its sender receives one; an operation until somebody waits for it") {
  const DryRun dry;
  const std::shared_ptr<ProcessGroup> world = dry_world(2, 0);
  const MemoryPool& pool = *MemoryPool::current();
  const auto under_way = [&] { return pool.use(MemoryCategory::communication).live; };
  const Tensor x = Tensor::empty({1 << 20});
  world->send(x, 1, 0).wait();
  world->send(x, 1, 0).wait();
  CHECK(under_way() == 2 * x.bytes());
  world->recv(Tensor::empty({1 << 20}), 1, 0).wait();
  CHECK(under_way() == 0);

  const std::int64_t before = pool.total().live;
  Work work = world->all_reduce(Tensor::empty({1 << 20}), ReduceOp::sum, Launch::background);
  CHECK(pool.total().live == before + x.bytes());
  work.wait();
  CHECK(pool.total().live == before);
}

}  // namespace dry_group_test

TEST_CASE("ranks whose dry runs share facts know what the others brought to a sum or a broadcast") {
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  const DryRun dry;
  for (const int rank : {3, 0}) {
    const auto world = dry_world(4, rank, nullptr, facts);
    Tensor sum = Tensor::full({1}, rank, DType::f64), told = Tensor::full({2}, rank, DType::i32);
    world->all_reduce(sum).wait();
    world->broadcast(told, 3).wait();
    CHECK(sum.item() == (rank == 3 ? 12 : 3));  // rank 0: three that are as itself, and rank 3
    CHECK(told.data<std::int32_t>()[1] == 3);
  }
}
