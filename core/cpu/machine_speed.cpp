#include "core/machine_speed.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/cpu/partition.h"
#include "core/cpu/simd.h"
#include "core/parallel_for.h"
#include "core/tensor.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double measure_bytes(int team) {
  constexpr std::int64_t count = 24 << 20;  // 96 MiB of floats each, beyond most last-level caches
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor from = Tensor::zeros({count}, DType::f32), to = Tensor::zeros({count}, DType::f32);
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = Clock::now();
    parallel_team(team, [&](int member, int members) {
      const cpu::Range part = cpu::part_of(count, members, member);
      std::copy_n(from.data<float>() + part.begin, part.size(), to.data<float>() + part.begin);
    });
    best = std::max(best, 2.0 * count * sizeof(float) / seconds_since(start));
  }
  return best;
}

}  // namespace

double measure_flops(int team) {
  constexpr int chains = 12, steps = 1'000'000;  // enough chains to hide the latency of one
  constexpr double flops = 2.0 * chains * steps * cpu::lanes<float>;
  double best = 0;
  for (int attempt = 0; attempt < 7; ++attempt) {
    const auto start = Clock::now();
    parallel_team(team, [&](int, int) {
      volatile float source = 0.5F;  // unknown to the compiler, so that no chain is folded into another
      cpu::Vector<float> sum[chains];
      for (cpu::Vector<float>& chain : sum) chain = cpu::Vector<float>{} + source;
      const cpu::Vector<float> factor = cpu::Vector<float>{} + source, term = factor;
      for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 12
        for (cpu::Vector<float>& chain : sum) chain = chain * factor + term;
      }
      cpu::Vector<float> all = sum[0];
      for (int i = 1; i < chains; ++i) all += sum[i];
      volatile float sink = all[0];
      static_cast<void>(sink);
    });
    best = std::max(best, flops * team / seconds_since(start));
  }
  return best;
}

MachineSpeed measure_machine_speed(int team) { return {measure_flops(team), measure_bytes(team)}; }

}  // namespace trireme
