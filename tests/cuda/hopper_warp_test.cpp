// The rest of what is Hopper's own: stmatrix, and the TMA store of what it wrote; setmaxnreg in the pairs that the
// kernels use; named barriers in turns; where shared memory begins.
// Read next: cuda/kernels/attention_hopper.h, which uses them together.
#include <doctest/doctest.h>

#include <vector>

#include "tests/cuda/hopper_support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace hopper_warp_test {
namespace {

constexpr int kTokens = 64, kDim = 64, kHeads = 2, kGroup = 128;

__device__ __forceinline__ int thread_index() { return static_cast<int>(threadIdx.x); }

/// Each warp writes its sixteen rows of in [64, 64] with stmatrix, then stores them by TMA as tokens of head 1. plain:
/// the same rows, read back by ordinary loads.
__global__ void matrices(const __grid_constant__ TensorMap map, const f16* in, float* plain) {
#if TRIREME_HOPPER_CODE
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
  std::byte* const line = memory + (first + lane % 16) * 128;
  for (int n = 0; n < kDim / 8; n += 2) {  // matrices: rows 0 and 8, then eight columns further
    std::uint32_t pairs[4];
    for (int i = 0; i < 4; ++i) {
      const f16* const from = in + (first + lane / 4 + 8 * (i % 2)) * kDim + 8 * (n + i / 2) + 2 * (lane % 4);
      pairs[i] = from[0].bits | static_cast<std::uint32_t>(from[1].bits) << 16;
    }
    stmatrix_x4(pairs, line + ((n + lane / 16) ^ (lane % 8)) * 16);
  }
  fence_async_proxy();
  sync_warp();
  if (lane == 0) {
    tma_store_4d(map, memory + first * 128, 0, first, 1, 0);
    tma_store_commit();
  }
  for (int i = lane; i < 16 * kDim; i += 32) {
    const int row = first + i / kDim, column = i % kDim;
    const std::uint32_t at = swizzled(Swizzle::b128, static_cast<std::uint32_t>(128 * row + 2 * column));
    plain[row * kDim + column] = to_float(*reinterpret_cast<const f16*>(memory + at));
  }
  if (lane == 0) tma_store_wait<0>();
#endif
}

/// A group that gives registers away, and others that take them. Each thread of the takers keeps `Kept` values alive.
template <int Groups, int Down, int Up, int Kept>
__global__ void __launch_bounds__(Groups* kGroup, 1) registers(int rounds, int* out) {
#if TRIREME_HOPPER_CODE
  if (thread_index() < kGroup) {
    set_max_registers_down<Down>();
    out[thread_index()] = Down + thread_index();
    return;
  }
  set_max_registers_up<Up>();
  int kept[Kept];
  TRIREME_UNROLL
  for (int i = 0; i < Kept; ++i) kept[i] = i * thread_index();
  for (int round = 0; round < rounds; ++round) {
    TRIREME_UNROLL
    for (int i = 0; i < Kept; ++i) kept[i] += kept[(i + 1) % Kept] & 1;
  }
  int sum = 0;
  TRIREME_UNROLL
  for (int i = 0; i < Kept; ++i) sum += kept[i];
  out[thread_index()] = sum;
#endif
}

template <int Groups, int Down, int Up, int Kept>
void check_registers(int rounds) {
  Buffer<int> out(static_cast<std::size_t>(Groups) * kGroup);
  out.fill(-1);
  launch({"registers", {1, 1, 1}, {Groups * kGroup, 1, 1}}, registers<Groups, Down, Up, Kept>, rounds, out.data());
  const auto expected = [&](std::size_t thread) {
    const int t = static_cast<int>(thread);
    if (t < kGroup) return static_cast<double>(Down + t);
    std::vector<int> kept(Kept);
    for (int i = 0; i < Kept; ++i) kept[static_cast<std::size_t>(i)] = i * t;
    for (int round = 0; round < rounds; ++round)
      for (std::size_t i = 0; i < Kept; ++i) kept[i] += kept[(i + 1) % Kept] & 1;
    int sum = 0;
    for (const int value : kept) sum += value;
    return static_cast<double>(sum);
  };
  compare({fmt::format("setmaxnreg {} down, {} up, {} threads", Down, Up, Groups * kGroup), out.size(),
           [&](std::size_t i) { return static_cast<double>(out.value(i)); }, expected,
           [](std::size_t i) { return fmt::format("thread {}", i); },
           [](double value) { return value == -1 ? "not written" : "a sum"; }});
}

/// Two groups take turns: one writes, arrives and goes on; the other waits, reads, and hands back.
__global__ void turns(int rounds, int* out) {  // [rounds, 128]
  TRIREME_SHARED(int, slot, kGroup);
  const int mine = thread_index() % kGroup;
  for (int round = 0; round < rounds; ++round)
    if (thread_index() < kGroup) {
      slot[mine] = 1000 * round + mine;
      barrier_arrive(1, 2 * kGroup);
      barrier_sync(2, 2 * kGroup);
    } else {
      barrier_sync(1, 2 * kGroup);
      out[round * kGroup + mine] = slot[kGroup - 1 - mine];
      barrier_arrive(2, 2 * kGroup);
    }
}

/// All fifteen named barriers, one warp pair after the other; and the address where dynamic shared memory begins.
__global__ void all_barriers(int* out) {  // [15, 64], then the address
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  auto* const slots = reinterpret_cast<int*>(memory);
  for (int id = 1; id < 16; ++id) {
    slots[64 * id + thread_index()] = 100 * id + thread_index();
    barrier_sync(id, 64);
    out[64 * (id - 1) + thread_index()] = slots[64 * id + 63 - thread_index()];
  }
  if (thread_index() == 0) out[15 * 64] = static_cast<int>(shared_address(memory) % 1024);
}

}  // namespace

TEST_CASE("hopper: stmatrix, then a TMA store of what it wrote") {
  under_schedules([] {
    constexpr std::size_t count = std::size_t{kTokens} * kDim;
    Buffer<f16> in(count), out(kHeads * count);  // out [64 tokens, 2 heads, 64]
    Buffer<float> plain(count);
    for (std::size_t i = 0; i < count; ++i) in.set(i, f16(coded(static_cast<int>(i))));
    out.fill(3000.0F);
    plain.fill(3000.0F);
    const TiledHeads heads{"out", out.data(), kDim, kHeads, kTokens, 1, kHeads * kDim, 16};
    launch({"matrices", {1, 1, 1}, {128, 1, 1}, 2 * count}, matrices, tensor_map("hopper", heads), in.data(),
           plain.data());
    const auto place = [](std::size_t i) { return fmt::format("row {}, column {}", i / kDim, i % kDim); };
    const auto meaning = [](double value) {
      const int i = decoded(value);
      return value == 3000 ? "not written" : i < 0 ? "no value" : fmt::format("[{}, {}]", i / kDim, i % kDim);
    };
    const auto expected = [](std::size_t i) { return static_cast<double>(coded(static_cast<int>(i))); };
    compare({"stmatrix", count, [&](std::size_t i) { return plain.at(i); }, expected, place, meaning});
    for (const std::size_t head : {0, 1})
      compare({fmt::format("stmatrix and TMA store, head {}", head), count,
               [&](std::size_t i) { return out.at((i / kDim * kHeads + head) * kDim + i % kDim); },
               [&](std::size_t i) { return head == 0 ? 3000.0 : expected(i); }, place, meaning});
  });
}

TEST_CASE("hopper: setmaxnreg 40 down, 232 up") {
  under_schedules([] { check_registers<3, 40, 232, 180>(3); });
}
TEST_CASE("hopper: setmaxnreg 24 down, 240 up") {
  under_schedules([] { check_registers<3, 24, 240, 190>(3); });
}
TEST_CASE("hopper: setmaxnreg 32 down, 160 up") {
  under_schedules([] { check_registers<4, 32, 160, 120>(3); });
}

TEST_CASE("hopper: named barriers, two warp groups in turns") {
  under_schedules([] {
    constexpr int rounds = 9;
    Buffer<int> out(std::size_t{rounds} * kGroup);
    out.fill(-1);
    launch({"turns", {1, 1, 1}, {2 * kGroup, 1, 1}}, turns, rounds, out.data());
    compare({"named barriers in turns", out.size(), [&](std::size_t i) { return static_cast<double>(out.value(i)); },
             [](std::size_t i) { return static_cast<double>(1000 * (i / kGroup) + kGroup - 1 - i % kGroup); },
             [](std::size_t i) { return fmt::format("round {}, thread {}", i / kGroup, i % kGroup); },
             [](double value) { return value == -1 ? "not written" : fmt::format("round {}", int(value) / 1000); }});
  });
}

TEST_CASE("hopper: all named barriers; dynamic shared memory begins at a multiple of 1024") {
  under_schedules([] {
    Buffer<int> out(15 * 64 + 1);
    out.fill(-1);
    launch({"all_barriers", {1, 1, 1}, {64, 1, 1}, 16 * 64 * 4}, all_barriers, out.data());
    compare({"named barriers 1 to 15, and the address", out.size(),
             [&](std::size_t i) { return static_cast<double>(out.value(i)); },
             [](std::size_t i) { return i == 15 * 64 ? 0.0 : static_cast<double>(100 * (i / 64 + 1) + 63 - i % 64); },
             [](std::size_t i) { return i == 15 * 64 ? "address % 1024" : fmt::format("barrier {}", i / 64 + 1); },
             [](double value) { return value == -1 ? "not written" : "a thread's value"; }});
  });
}

}  // namespace hopper_warp_test
