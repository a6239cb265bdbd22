// The caching pool: what it counts, that it reuses blocks, and that a block returns to its pool whichever thread drops
// it.
#include <doctest/doctest.h>

#include <cstdint>
#include <thread>

#include "core/machine_speed.h"
#include "core/tensor.h"

using namespace trireme;

namespace {

// A new pool for one test; the previous one is restored afterwards.
class FreshPool {
 public:
  FreshPool() : previous_(MemoryPool::current()) { MemoryPool::set_current(std::make_shared<MemoryPool>()); }
  ~FreshPool() { MemoryPool::set_current(previous_); }
  MemoryPool& operator*() const { return *MemoryPool::current(); }
  MemoryPool* operator->() const { return MemoryPool::current().get(); }

 private:
  std::shared_ptr<MemoryPool> previous_;
};

}  // namespace

TEST_CASE("memory pool: live and peak bytes by category") {
  const FreshPool pool;
  Tensor activation = Tensor::empty({10, 10}, DType::f32);
  Tensor parameter;
  {
    const MemoryScope scope(MemoryCategory::parameters);
    parameter = Tensor::empty({25}, DType::f64);
    {
      const MemoryScope inner(MemoryCategory::optimizer);
      const Tensor moment = Tensor::empty({3}, DType::f32);
      CHECK(pool->use(MemoryCategory::optimizer).live == 12);
    }
    CHECK(MemoryScope::category() == MemoryCategory::parameters);
  }
  CHECK(MemoryScope::category() == MemoryCategory::activations);
  CHECK(pool->use(MemoryCategory::activations).live == 400);
  CHECK(pool->use(MemoryCategory::parameters).live == 200);
  CHECK(pool->use(MemoryCategory::optimizer).live == 0);
  CHECK(pool->use(MemoryCategory::optimizer).peak == 12);
  CHECK(pool->total().live == 600);
  CHECK(pool->total().peak == 612);
  activation = Tensor();
  CHECK(pool->use(MemoryCategory::activations).live == 0);
  CHECK(pool->use(MemoryCategory::activations).peak == 400);
  pool->reset_peaks();
  CHECK(pool->use(MemoryCategory::activations).peak == 0);
  CHECK(pool->total().peak == 200);
}

TEST_CASE("memory pool: a view keeps its storage alive and counts once") {
  const FreshPool pool;
  Tensor whole = Tensor::empty({8, 8}, DType::f32);
  Tensor row = view::select(whole, 0, 3);
  CHECK_FALSE(whole.sole_owner());
  whole = Tensor();
  CHECK(pool->total().live == 256);
  CHECK(row.sole_owner());
  row = Tensor();
  CHECK(pool->total().live == 0);
}

TEST_CASE("memory pool: a steady state asks the system for nothing, and blocks are aligned to 64 bytes") {
  const FreshPool pool;
  std::int64_t after_first = 0;
  for (int step = 0; step < 5; ++step) {
    for (const std::int64_t count : {1, 17, 100, 1000, 100000}) {
      const Tensor x = Tensor::empty({count}, DType::f32), y = Tensor::empty({count}, DType::u8);
      CHECK(reinterpret_cast<std::uintptr_t>(x.raw()) % 64 == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(y.raw()) % 64 == 0);
      CHECK(x.raw() != y.raw());
    }
    if (step == 0) after_first = pool->system_allocations();
  }
  CHECK(pool->system_allocations() == after_first);
  pool->release_cached();
  const Tensor x = Tensor::empty({1000}, DType::f32);
  CHECK(pool->system_allocations() == after_first + 1);
}

TEST_CASE("memory pool: a block returns to the pool it came from, whichever thread drops it") {
  const FreshPool pool;
  Tensor x = Tensor::empty({1000}, DType::f32);
  std::thread([moved = std::move(x)]() mutable {
    MemoryPool& other = *MemoryPool::current();
    moved = Tensor();
    CHECK(other.total().live == 0);
    CHECK(other.system_allocations() == 0);
  }).join();
  CHECK(pool->total().live == 0);
  const std::int64_t before = pool->system_allocations();
  x = Tensor::empty({1000}, DType::f32);
  CHECK(pool->system_allocations() == before);
}

TEST_CASE("memory pool: a block may outlive the handle of its pool") {
  Tensor x;
  {
    const FreshPool pool;
    x = Tensor::empty({4}, DType::f32);
  }
  x = Tensor();
  CHECK_FALSE(x.defined());
}

TEST_CASE("memory pool: measuring the machine's speed does not count as memory of the run") {
  const FreshPool pool;
  CHECK(measure_machine_speed(1, DType::f32).bytes > 0);
  CHECK(pool->total().peak == 0);
}
