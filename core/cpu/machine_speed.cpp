#include "core/cpu/machine_speed.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/cpu/gemm_units.h"
#include "core/cpu/partition.h"
#include "core/cpu/simd.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace trireme::cpu {
namespace {

using Clock = std::chrono::steady_clock;

volatile float source = 0.5F;      // unknown to the compiler, so that no chain is folded into another
thread_local volatile float sink;  // so that sums are computed; each thread has its own

/// Seconds of the fastest of `tries` calls of body(member, members) on all threads at once.
template <class Body>
double fastest(int team, int tries, const Body& body) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    const auto start = Clock::now();
    parallel_team(team, body);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

/// While it lives, the thread's tensors are in a pool of their own: the peak of a run does not contain them.
class OwnPool {
 public:
  OwnPool() : previous_(MemoryPool::current()) { MemoryPool::set_current(std::make_shared<MemoryPool>()); }
  ~OwnPool() { MemoryPool::set_current(std::move(previous_)); }
  OwnPool(const OwnPool&) = delete;
  OwnPool& operator=(const OwnPool&) = delete;

 private:
  std::shared_ptr<MemoryPool> previous_;
};

double measure_bytes(int team) {
  constexpr std::int64_t count = 24 << 20;  // 96 MiB of floats each, beyond most last-level caches
  const OwnPool pool;
  const Tensor from = Tensor::zeros({count}, DType::f32), to = Tensor::zeros({count}, DType::f32);
  return 2.0 * count * sizeof(float) / fastest(team, 5, [&](int member, int members) {
           const IndexRange part = part_of(count, members, member);
           std::copy_n(from.data<float>() + part.begin, part.size(), to.data<float>() + part.begin);
         });
}

double f32_flops(int team) {
  constexpr int chains = 12, steps = 1'000'000;  // enough chains to hide the latency of one
  constexpr double flops = 2.0 * chains * steps * lanes<float>;
  return flops * team / fastest(team, 7, [](int, int) {
           Vector<float> sum[chains];
           for (Vector<float>& chain : sum) chain = Vector<float>{} + source;
           const Vector<float> factor = Vector<float>{} + source, term = factor;
           for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 12
             for (Vector<float>& chain : sum) chain = chain * factor + term;
           }
           Vector<float> all = sum[0];
           for (int i = 1; i < chains; ++i) all += sum[i];
           sink = all[0];
         });
}

double bf16_flops(int team) {
  return visit_unit<bf16>([&](auto tag) {
    using Unit = typename decltype(tag)::type;
    constexpr std::int64_t depth = 256;  // both panels take 32 KiB at most
    constexpr int calls = 20'000;
    constexpr double flops = 2.0 * Unit::rows * Unit::columns * depth * calls;
    return flops * team / fastest(team, 7, [](int, int) {
             Unit unit;
             const auto size = static_cast<std::size_t>(Unit::panel(std::max(Unit::rows, Unit::columns), depth));
             const std::vector<typename Unit::Element> a(size), b(size);
             std::vector<typename Unit::Sum> tile(static_cast<std::size_t>(Unit::rows) * Unit::columns);
             for (int call = 0; call < calls; ++call) unit.multiply(Unit::rows, depth, a.data(), b.data(), tile.data());
             sink = static_cast<float>(tile[0]);
           });
  });
}

}  // namespace

double level_flops(int team, DType dtype) {
  const bool widened = bf16_unit() == Bf16Unit::vectors;
  return dtype == DType::bf16 && !widened ? bf16_flops(team) : f32_flops(team);
}

MachineSpeed level_speed(int team, DType dtype) {
  return {.flops = level_flops(team, DType::f32),
          .bytes = measure_bytes(team),
          .bf16_flops = dtype == DType::bf16 ? level_flops(team, dtype) : 0};
}

}  // namespace trireme::cpu
