#include "bench/peaks.h"

#include <algorithm>
#include <vector>

#include "bench/timing.h"
#include "core/cpu/gemm_units.h"
#include "core/cpu/simd.h"
#include "core/machine_speed.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

constexpr int tries = 7;

/// Seconds of the fastest call of body(member, members) on all threads at once.
template <class Body>
double fastest(int team, const Body& body) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    const auto start = Clock::now();
    parallel_team(team, body);
    best = std::min(best, seconds_since(start));
  }
  return best;
}

volatile float sink;  // so that sums are computed

double bf16_flops(int team) {
  return cpu::visit_unit<bf16>([&](auto tag) {
    using Unit = typename decltype(tag)::type;
    constexpr std::int64_t depth = 256;  // both panels take 32 KiB at most
    constexpr int calls = 20'000;
    const double seconds = fastest(team, [](int, int) {
      Unit unit;
      const auto size = static_cast<std::size_t>(Unit::panel(std::max(Unit::rows, Unit::columns), depth));
      const std::vector<typename Unit::Element> a(size), b(size);
      std::vector<typename Unit::Sum> tile(static_cast<std::size_t>(Unit::rows) * Unit::columns);
      for (int call = 0; call < calls; ++call) unit.multiply(Unit::rows, depth, a.data(), b.data(), tile.data());
      sink = static_cast<float>(tile[0]);
    });
    return 2.0 * Unit::rows * Unit::columns * depth * calls * team / seconds;
  });
}

constexpr std::int64_t count = 64 << 20;  // 256 MiB of floats

/// Seconds in which body(first, last) goes through each thread's part of x.
template <class Body>
double sweep(int team, float* x, const Body& body) {
  return fastest(team, [&](int member, int members) {
    const cpu::Range part = cpu::part_of(count, members, member);
    body(x + part.begin, x + part.end);
  });
}

void sum(const float* first, const float* last) {
  constexpr int chains = 8;
  cpu::Vector<float> sums[chains] = {};
  for (; first + chains * cpu::lanes<float> <= last; first += chains * cpu::lanes<float>)
    for (int i = 0; i < chains; ++i) sums[i] += cpu::load<float>(first + i * cpu::lanes<float>);
  for (const cpu::Vector<float>& each : sums) sink = each[0];
}

void update(float* first, const float* last) {
  for (; first != last; ++first) *first = 0.5F * *first + 0.25F;
}

}  // namespace

double peak_flops(int team, DType dtype) {
  const bool widened = cpu::bf16_unit() == cpu::Bf16Unit::vectors;
  return dtype == DType::bf16 && !widened ? bf16_flops(team) : measure_flops(team);
}

MemorySpeed memory_speed(int team) {
  const Tensor memory = Tensor::full({count}, 1);
  auto* x = memory.data<float>();
  constexpr double bytes = count * sizeof(float);
  return {.read = bytes / sweep(team, x, sum), .update = 2 * bytes / sweep(team, x, update)};
}

MemorySweep::MemorySweep(int team)
    : team_(team), memory_(Tensor::full({bytes / static_cast<std::int64_t>(sizeof(float))}, 1)) {}

void MemorySweep::read() const {
  parallel_team(team_, [x = memory_.data<float>(), n = memory_.count()](int member, int members) {
    const cpu::Range part = cpu::part_of(n, members, member);
    sum(x + part.begin, x + part.end);
  });
}

}  // namespace trireme::bench
