// The race checker: small kernels with planted races. Each race must be reported with both of its lines, under every
// schedule (two of them may run into a fault first), and the same kernels without the bug must give no report.
// Read next: tests/cuda/check_races.cpp.
//
// A comment "// @name" in a kernel marks the line that a report has to name.
#include <doctest/doctest.h>

#include "cuda/device/device.h"
#include "tests/cuda/report.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace race_test {
namespace {

enum class Bug : std::uint8_t {
  none,
  no_barrier_before_read,
  no_barrier_before_reuse,
  shuffle_for_syncwarp,
  two_threads_one_cell,
  two_blocks_one_cell,
  in_place_across_blocks,
  no_barrier_between_turns,
  no_copy_wait,
  no_barrier_after_copy,
  stage_reused_early,
  named_barrier_early,
  no_barrier_after_init,
  early_release,
  wrong_phase,
  one_thread_waits,
  no_wgmma_wait,
  no_proxy_fence,
  fence_by_other_thread,
  no_store_wait,
};

int thread() { return static_cast<int>(threadIdx.x); }
int lane() { return thread() % 32; }
int warp() { return thread() / 32; }

// ---- barriers -------------------------------------------------------------------------------------------------------

__global__ void block_sum(Bug bug, const float* in, float* out) {  // in, out [2, 128]
  TRIREME_SHARED(float, scratch, 4);
  for (int row = 0; row < 2; ++row) {
    const float sum = reduce_warp<Sum>(in[row * 128 + thread()]);
    if (bug != Bug::no_barrier_before_reuse) sync_threads();
    if (lane() == 0) scratch[warp()] = sum;  // @sum write
    if (bug != Bug::no_barrier_before_read) sync_threads();
    float total = 0;
    for (int i = 0; i < 4; ++i) total += scratch[i];  // @sum read
    out[row * 128 + thread()] = total;
  }
}

__global__ void exchange(Bug bug, const float* in, float* out) {  // in, out [2, 128]
  TRIREME_SHARED(float, slab, 128);
  slab[thread()] = in[thread()];  // @exchange write
  if (bug == Bug::shuffle_for_syncwarp)
    out[128 + thread()] = shuffle_xor(in[thread()], 1);  // the warp meets, but memory is not ordered
  else
    sync_warp();
  out[thread()] = slab[thread() ^ 1];  // @exchange read
}

__global__ void scatter(Bug bug, const float* in, float* out) {  // in, out [2, 128]; two blocks of 128
  const int block = static_cast<int>(blockIdx.x);
  const int cell = bug == Bug::two_threads_one_cell ? thread() / 2 : thread();
  out[(bug == Bug::two_blocks_one_cell ? 0 : block * 128) + cell] = in[block * 128 + thread()];  // @scatter
}

__global__ void smooth(Bug bug, float* in, float* out) {  // in, out [2, 128]; two blocks of 128
  const int i = static_cast<int>(blockIdx.x) * 128 + thread();
  const float right = i < 255 ? in[i + 1] : 0.0F;                     // @smooth read
  sync_threads();                                                     // orders the threads of this block only
  (bug == Bug::in_place_across_blocks ? in : out)[i] = 0.5F * right;  // @smooth write
}

/// Each warp adds its share of a gradient to the block's, one warp after the other: a sum in fixed order.
__global__ void add_in_turns(Bug bug, const float* in, float* out) {  // in, out [2, 128]
  TRIREME_SHARED(float, dk, 64);
  for (int turn = 0; turn < 4; ++turn) {
    if (warp() == turn)
      for (int i = lane(); i < 64; i += 32) dk[i] = (turn == 0 ? 0.0F : dk[i]) + in[(64 * turn + i) % 256];  // @add
    if (bug != Bug::no_barrier_between_turns || turn == 3) sync_threads();
  }
  out[thread()] = dk[thread() % 64];
}

__global__ void hand_over(Bug bug, const float* in, float* out) {  // in, out [2, 128]
  TRIREME_SHARED(float, slab, 64);
  if (warp() < 2) {
    if (bug == Bug::named_barrier_early) barrier_arrive(1, 128);
    slab[thread()] = in[thread()];  // @hand write
    if (bug != Bug::named_barrier_early) barrier_arrive(1, 128);
  } else {
    barrier_sync(1, 128);
    out[thread()] = slab[127 - thread()];  // @hand read
  }
}

// ---- cp.async -------------------------------------------------------------------------------------------------------

__global__ void pipeline(Bug bug, const float* in, float* out) {  // in, out [4, 512]
  TRIREME_SHARED(float, stages, 2 * 512);
  const auto copy = [&](int step) {
    cp_async_16(stages + step % 2 * 512 + 4 * thread(), in + step * 512 + 4 * thread());  // @pipeline copy
    cp_async_commit();
  };
  copy(0);
  for (int step = 0; step < 4; ++step) {
    if (bug != Bug::no_copy_wait) cp_async_wait<0>();
    if (bug == Bug::stage_reused_early && step < 3) copy(step + 1);
    if (bug != Bug::no_barrier_after_copy) sync_threads();
    if (bug != Bug::stage_reused_early && step < 3) copy(step + 1);
    for (int i = 0; i < 4; ++i)
      out[step * 512 + 128 * i + thread()] = stages[step % 2 * 512 + 128 * i + thread()];  // @pipeline read
  }
  cp_async_wait<0>();
}

// ---- mbarriers ------------------------------------------------------------------------------------------------------

__global__ void ring(Bug bug, const float* in, float* out) {  // in, out [4, 32]; warp 0 produces, warp 1 consumes
  TRIREME_SHARED(float, slots, 2 * 32);
  TRIREME_SHARED(std::uint64_t, barriers, 4);
  std::uint64_t *const full = barriers, *const empty = barriers + 2;
  if (thread() == 0) {
    for (int i = 0; i < 4; ++i) mbarrier_init(barriers + i, 32);  // @ring init
    fence_mbarrier_init();
  }
  if (bug != Bug::no_barrier_after_init) sync_threads();
  for (int step = 0; step < 4; ++step) {
    const int slot = step % 2;
    const auto parity = static_cast<std::uint32_t>(step / 2 % 2);
    if (warp() == 0) {
      mbarrier_wait(empty + slot, parity ^ 1U);            // @ring wait
      slots[slot * 32 + lane()] = in[step * 32 + lane()];  // @ring write
      mbarrier_arrive(full + slot);
    } else {
      mbarrier_wait(full + slot, bug == Bug::wrong_phase ? parity ^ 1U : parity);
      if (bug == Bug::early_release) mbarrier_arrive(empty + slot);
      out[step * 32 + lane()] = slots[slot * 32 + (31 - lane())];  // @ring read
      if (bug != Bug::early_release) mbarrier_arrive(empty + slot);
    }
  }
}

// ---- TMA and wgmma: d [2, 64, 32], one warp group -------------------------------------------------------------------

constexpr int kSteps = 3, kBytesA = 64 * 128, kBytesB = 32 * 128;

std::uint64_t descriptor(const std::byte* tile) {
  return (shared_address(tile) >> 4) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
}

void multiply(float* sum, const std::byte* tiles) {
  const std::uint64_t a = descriptor(tiles), b = descriptor(tiles + kBytesA);
  wgmma_m64k16<bf16, 32>(sum, a, b, true);  // @product
}

__global__ void hopper(Bug bug, TensorMap a, TensorMap b, TensorMap d) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, full, 1);
  auto* const out = reinterpret_cast<float*>(memory + kBytesA + kBytesB);  // [64, 32]
  if (thread() == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  sync_threads();
  float sum[16] = {};
  for (int step = 0; step < kSteps; ++step) {
    if (thread() == 0) {
      mbarrier_arrive_expect(full, kBytesA + kBytesB);
      tma_load_3d(memory, a, 64 * step, 0, 0, full);  // @hopper load
      tma_load_3d(memory + kBytesA, b, 64 * step, 0, 0, full);
    }
    if (bug != Bug::one_thread_waits || thread() == 0) mbarrier_wait(full, static_cast<std::uint32_t>(step % 2));
    wgmma_fence();
    for (int k = 0; k < 4; ++k) multiply(sum, memory + 32 * k);
    wgmma_commit();
    if (bug != Bug::no_wgmma_wait) wgmma_wait<0>();
    sync_threads();  // everyone is done with the tiles
  }
  wgmma_wait<0>();
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 16; ++i)
      out[(16 * warp() + lane() / 4 + 8 * (i / 2 % 2)) * 32 + 8 * (i / 4) + thread() % 4 * 2 + i % 2] = sum[i];  // @out
    if (bug == Bug::fence_by_other_thread ? thread() == 0 : bug != Bug::no_proxy_fence) fence_async_proxy();
    sync_threads();
    if (thread() == 0) {
      tma_store_3d(d, out, 0, 0, half);  // @hopper store
      tma_store_commit();
      if (bug != Bug::no_store_wait) tma_store_wait<0>();
    }
    sync_threads();
  }
  if (thread() == 0) tma_store_wait<0>();
}

template <class T>
TensorMap map_of(Buffer<T>& tensor, std::array<std::int64_t, 3> size, std::array<int, 3> box, Swizzle swizzle) {
  const auto bytes = static_cast<std::int64_t>(sizeof(T));
  TensorMap map;
  map.base = reinterpret_cast<std::byte*>(tensor.data());
  map.rank = 3;
  map.element_bytes = sizeof(T);
  map.size = {size[0], size[1], size[2]};
  map.stride = {bytes, bytes * size[0], bytes * size[0] * size[1]};
  map.box = {box[0], box[1], box[2]};
  map.swizzle = swizzle;
  return map;
}

void run_hopper(Bug bug) {
  Buffer<bf16> a(64 * 64 * kSteps), b(32 * 64 * kSteps);
  Buffer<float> d(2 * 64 * 32);
  a.fill_random(1);
  b.fill_random(2);
  launch({"hopper", {1, 1, 1}, {128, 1, 1}, kBytesA + kBytesB + 64 * 32 * 4}, hopper, bug,
         map_of(a, {64 * kSteps, 64, 1}, {64, 64, 1}, Swizzle::b128),
         map_of(b, {64 * kSteps, 32, 1}, {64, 32, 1}, Swizzle::b128),
         map_of(d, {32, 64, 2}, {32, 64, 1}, Swizzle::none));
}

template <auto kKernel, unsigned kBlocks, unsigned kThreads>
void run(Bug bug) {
  Buffer<float> in(2048), out(2048);
  in.fill_random(1);
  launch({"planted", {kBlocks, 1, 1}, {kThreads, 1, 1}}, kKernel, bug, in.data(), out.data());
}

// ---- the table ------------------------------------------------------------------------------------------------------

constexpr const char *kUnordered = "nothing orders the two", *kUnfenced = "no proxy fence lies between the two";

struct Planted {
  Bug bug;
  void (*run)(Bug);
  const char *one, *other;  ///< marks of the two lines, in any order
  const char* text = kUnordered;
  const char* instead = nullptr;  ///< what some schedules run into before the race
};

const Planted kPlanted[] = {
    {Bug::no_barrier_before_read, run<block_sum, 1, 128>, "@sum write", "@sum read"},
    {Bug::no_barrier_before_reuse, run<block_sum, 1, 128>, "@sum write", "@sum read"},
    {Bug::shuffle_for_syncwarp, run<exchange, 1, 128>, "@exchange write", "@exchange read"},
    {Bug::two_threads_one_cell, run<scatter, 2, 128>, "@scatter", "@scatter"},
    {Bug::two_blocks_one_cell, run<scatter, 2, 128>, "@scatter", "@scatter"},
    {Bug::in_place_across_blocks, run<smooth, 2, 128>, "@smooth read", "@smooth write"},
    {Bug::no_barrier_between_turns, run<add_in_turns, 1, 128>, "@add", "@add"},
    {Bug::no_copy_wait, run<pipeline, 1, 128>, "@pipeline copy", "@pipeline read"},
    {Bug::no_barrier_after_copy, run<pipeline, 1, 128>, "@pipeline copy", "@pipeline read"},
    {Bug::stage_reused_early, run<pipeline, 1, 128>, "@pipeline copy", "@pipeline read"},
    {Bug::named_barrier_early, run<hand_over, 1, 128>, "@hand write", "@hand read"},
    {Bug::no_barrier_after_init, run<ring, 1, 64>, "@ring init", "@ring wait", kUnordered, "never initialised"},
    {Bug::early_release, run<ring, 1, 64>, "@ring write", "@ring read"},
    {Bug::wrong_phase, run<ring, 1, 64>, "@ring write", "@ring read", kUnordered, "deadlock"},
    {Bug::one_thread_waits, run_hopper, "@hopper load", "@product"},
    {Bug::no_wgmma_wait, run_hopper, "@hopper load", "@product"},
    {Bug::no_proxy_fence, run_hopper, "@out", "@hopper store", kUnfenced},
    {Bug::fence_by_other_thread, run_hopper, "@out", "@hopper store", kUnfenced},
    {Bug::no_store_wait, run_hopper, "@out", "@hopper store"},
};

std::string line_of(const std::string& mark) { return cuda_test::line_of("race_test.cpp", mark); }

/// A kernel without instrumentation: the checker does not see its accesses.
__attribute__((no_sanitize_thread)) void not_instrumented(float* out) { out[threadIdx.x] = 1; }

}  // namespace

TEST_CASE("races: the kernels without a bug have none, under eight schedules") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const emu::ScopedSchedule schedule({seed});
    for (const Planted& planted : kPlanted) CHECK(error_of([&] { planted.run(Bug::none); }) == "");
  }
}

TEST_CASE("races: every planted one is reported with both lines, under each of four schedules") {
  for (const Planted& planted : kPlanted) {
    CAPTURE(static_cast<int>(planted.bug));
    int races = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      CAPTURE(seed);
      const emu::ScopedSchedule schedule({seed});
      const std::string report = error_of([&] { planted.run(planted.bug); });
      CAPTURE(report);
      if (planted.instead != nullptr && report.find(planted.instead) != std::string::npos) continue;
      CHECK(report.find("race on ") != std::string::npos);
      CHECK(report.find(line_of(planted.one)) != std::string::npos);
      CHECK(report.find(line_of(planted.other)) != std::string::npos);
      CHECK(report.find(planted.text) != std::string::npos);
      ++races;
    }
    CHECK(races > 0);
  }
}

TEST_CASE("races: a report names threads, what they do and where; and is the same every time") {
  const auto report = [] { return error_of([] { run<block_sum, 1, 128>(Bug::no_barrier_before_read); }); };
  CHECK(report() == report());
  CHECK(report().find("race on scratch[0] of the shared memory of race_test.cpp:") != std::string::npos);
  CHECK(report().find("block 0 thread 0 writes at " + line_of("@sum write") + "; before that") != std::string::npos);
  const std::string blocks = error_of([] { run<scatter, 2, 128>(Bug::two_blocks_one_cell); });
  CHECK(blocks.find("block 1 thread 0 writes at") != std::string::npos);
  CHECK(blocks.find("before that block 0 thread 0 writes at") != std::string::npos);
}

TEST_CASE("races: a kernel compiled without the flag is refused, not passed") {
  Buffer<float> out(32);
  const std::string report = error_of([&] { launch({"hidden", {1, 1, 1}, {32, 1, 1}}, not_instrumented, out.data()); });
  CHECK(report.find("compile its source with -fsanitize=thread") != std::string::npos);
}

}  // namespace race_test
