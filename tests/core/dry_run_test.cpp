#include "core/dry_run.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstdint>

#include "core/kernels.h"
#include "core/memory.h"
#include "core/parallel_for.h"

using namespace trireme;

TEST_CASE("a dry run counts what it allocates, and has no memory behind it") {
  const std::shared_ptr<MemoryPool> own = MemoryPool::current();
  const std::int64_t before = own->total().live;
  {
    const DryRun dry;
    // 256 GiB each: under ThreadSanitizer a program has 1.5 TiB of addresses.
    const Tensor x = Tensor::empty({1 << 16, 1 << 20});
    Tensor y = Tensor::empty(x.shape());
    kernels(Device::cpu).unary(Unary::exp, x, y);
    CHECK(MemoryPool::current()->total().live == std::int64_t{512} << 30);
  }
  CHECK(MemoryPool::current() == own);
  CHECK(own->total().live == before);
  CHECK(MemoryPool::current()->total().live == before);
}

TEST_CASE("a dry run makes what programs look at: whole numbers and small tensors; the rest is 0") {
  const DryRun dry;
  const Tensor ids = Tensor::full({5000}, 7, DType::i32), number = Tensor::full({1}, 2.5, DType::f64),
               large = Tensor::full({5000}, 2.5);
  CHECK(clone(ids).data<std::int32_t>()[4999] == 7);
  CHECK(number.item() == 2.5);
  CHECK(large.data<float>()[4999] == 0);
  Tensor sum = Tensor::empty({1});
  kernels(Device::cpu).reduce(Reduction::sum, large, sum);
  CHECK(sum.item() == 0);
}

TEST_CASE("ids come to a device and back in a dry run, also megabytes of them") {
  const DryRun dry;
  const Tensor ids = Tensor::full({1 << 20}, 7, DType::i32);
  CHECK(ids.to(Device::cuda).to(Device::cpu).data<std::int32_t>()[(1 << 20) - 1] == 7);
}

TEST_CASE("a dry run chooses experts in turn") {
  const DryRun dry;
  Tensor chosen = Tensor::empty({3, 2}, DType::i32);
  kernels(Device::cpu).top_k(Tensor::empty({3, 4}), chosen);
  const auto all = chosen.span<const std::int32_t>();
  CHECK(std::vector(all.begin(), all.end()) == std::vector<std::int32_t>{0, 1, 2, 3, 0, 1});
}

TEST_CASE("loops over elements are left out in a dry run, and made within Computing") {
  const DryRun dry;
  int calls = 0;
  parallel_for(1, 1, [&](std::int64_t, std::int64_t) { ++calls; });
  parallel_parts(1, [&](int, int) { ++calls; });
  parallel_team(1, [&](int, int) { ++calls; });
  CHECK(calls == 0);
  const DryRun::Computing computing;
  parallel_for(1, 1, [&](std::int64_t, std::int64_t) { ++calls; });
  CHECK(calls == 1);
}

TEST_CASE("a dry run has devices that are not there") {
  {
    const DryRun dry;
    const Tensor x = Tensor::full({3}, 4, DType::i32), there = x.to(Device::cuda);
    Tensor y = Tensor::empty({1 << 17, 1 << 20}, DType::bf16, Device::cuda);
    kernels(Device::cuda).unary(Unary::exp, y, y);
    CHECK(there.to(Device::cpu).data<std::int32_t>()[2] == 4);
    CHECK(MemoryPool::current()->on(Device::cuda)->total().live == (std::int64_t{256} << 30) + 12);
    CHECK(is_available(Device::cuda));
  }
  CHECK_THROWS_WITH_AS(static_cast<void>([] { const DryRun first, second; }()),
                       doctest::Contains("in a dry run already"), Error);
  CHECK_FALSE(DryRun::on());
}

TEST_CASE("the memory at the peak is that of all categories at the same moment") {
  const DryRun dry;
  MemoryPool& pool = *MemoryPool::current();
  Tensor x = Tensor::empty({100}, DType::u8);
  {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor y = Tensor::empty({50}, DType::u8);
  }
  x = Tensor();
  x = Tensor::empty({120}, DType::u8);
  const auto at = [&](MemoryCategory category) { return pool.at_peak()[static_cast<std::size_t>(category)]; };
  CHECK(pool.total().peak == 150);
  CHECK(at(MemoryCategory::activations) == 100);
  CHECK(at(MemoryCategory::workspace) == 50);
  CHECK(pool.use(MemoryCategory::activations).peak == 120);
}

TEST_CASE("a dry run that computes has memory; others have addresses") {
  const auto is_resident = [] {
    const Tensor x = Tensor::empty({1 << 20});
    constexpr std::uintptr_t page = 4096;
    const std::uintptr_t within = reinterpret_cast<std::uintptr_t>(x.raw()) + (std::uintptr_t{1} << 20);
    unsigned char resident = 0;
    REQUIRE(::mincore(reinterpret_cast<void*>(within / page * page), page, &resident) == 0);  // NOLINT
    return (resident & 1) != 0;
  };
  {
    const DryRun dry(nullptr, true);
    CHECK(is_resident());
  }
  const DryRun dry;
  CHECK_FALSE(is_resident());
}
