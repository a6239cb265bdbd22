#include "bench/peaks.h"

#include <algorithm>

#include "bench/timing.h"
#include "core/cpu/partition.h"
#include "core/cpu/simd.h"
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

volatile float sink;  // so that the compiler does not drop the sums

constexpr std::int64_t count = 64 << 20;  // 256 MiB of floats

/// Seconds in which body(first, last) processes each thread's part of x.
template <class Body>
double sweep(int team, float* x, const Body& body) {
  return fastest(team, [&](int member, int members) {
    const cpu::IndexRange part = cpu::part_of(count, members, member);
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
    const cpu::IndexRange part = cpu::part_of(n, members, member);
    sum(x + part.begin, x + part.end);
  });
}

}  // namespace trireme::bench
