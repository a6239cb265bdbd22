// Kernels with planted bugs. The emulator must catch each one, by a report or by a wrong result, under at least one of
// a few schedules, and must report nothing about the same kernels without the bug.
//
// Three kernels, each with the mistakes that kernels of its kind have: a sum over a block (barriers, shuffles, shared
// memory), an Ampere product of one tile (cp.async, ldmatrix, mma.sync) and a Hopper one (TMA, mbarrier, wgmma).
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/device/device.h"
#include "cuda/kernels/tile.h"
#include "tests/cuda/report.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;

namespace planted_test {
namespace {

enum class Bug : std::uint8_t {
  none,
  // a sum over a block
  no_barrier_before_read,
  no_barrier_before_reuse,
  barrier_in_branch,
  shuffle_in_branch,
  wrong_shuffle_mask,
  short_shared_array,
  unwritten_shared,
  // Ampere
  no_copy_wait,
  no_barrier_after_copy,
  stage_reused_early,
  wrong_chunk_permutation,
  not_transposed,
  wrong_fragment,
  misaligned_row,
  tile_past_end,
  no_commit,
  // Hopper
  wrong_phase,
  early_release,
  wrong_byte_count,
  no_init_fence,
  no_barrier_after_init,
  uninitialised_barrier,
  no_proxy_fence,
  wrong_map_swizzle,
  wrong_descriptor_stride,
  wrong_k_advance,
  no_wgmma_wait,
  touched_accumulators,
  no_wgmma_commit,
  no_store_wait,
  too_many_arrivals,
  registers_wrong_way,
  wrong_map_dims,
  missing_load,
  load_at_part_of_16_bytes,
  store_at_negative_row,
  last = store_at_negative_row,
};

int thread() { return static_cast<int>(threadIdx.x); }

// ---- a sum over a block, twice --------------------------------------------------------------------------------------

void sums(Bug bug, const float* in, float* out) {  // in [2, 128], out [2, 128]: the sum of each row, for every thread
  const int count = bug == Bug::short_shared_array ? 3 : 4;
  TRIREME_SHARED(float, scratch, count);
  const int lane = thread() % 32, warp = thread() / 32;
  for (int row = 0; row < 2; ++row) {
    float sum = in[row * 128 + thread()];
    for (int bits = 16; bits > 0; bits /= 2) {
      if (bug == Bug::shuffle_in_branch && lane >= 16) {
        sum += shuffle_xor(sum, bits);
        continue;
      }
      sum += shuffle_xor(sum, bits, bug == Bug::wrong_shuffle_mask ? 0xffffU : ~0U);
    }
    if (bug != Bug::no_barrier_before_reuse) sync_threads();
    if (lane == 0 && (bug != Bug::unwritten_shared || warp > 0)) scratch[warp] = sum;
    if (bug == Bug::barrier_in_branch) {
      if (warp > 0) sync_threads();
    } else if (bug != Bug::no_barrier_before_read) {
      sync_threads();
    }
    out[row * 128 + thread()] = scratch[0] + scratch[1] + scratch[2] + scratch[3];
  }
}

bool sums_are_right(Bug bug) {
  Buffer<float> in(256), out(256);
  in.fill_random(7);
  launch({"sums", {1, 1, 1}, {128, 1, 1}}, sums, bug, in.data(), out.data());
  bool right = true;
  for (std::size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < 128; ++i) sum += in.at(row * 128 + i);
    for (std::size_t i = 0; i < 128; ++i) right = right && std::abs(out.at(row * 128 + i) - sum) < 1e-4;
  }
  return right;
}

// ---- Ampere: d [16, 16] = a [16, 128] b [128, 16], two warps, each one half of the columns --------------------------

constexpr int kStepsA = 4;

void ampere(Bug bug, const bf16* a, const bf16* b, float* d) {
  TRIREME_DYNAMIC_SHARED(memory, 128);
  using TileA = SharedTile<bf16, 16, 32>;
  using TileB = SharedTile<bf16, 32, 64>;  // columns 16 and up stay zero
  const auto tile_a = [&](int step) { return TileA{memory + step % 2 * (TileA::kBytes + TileB::kBytes)}; };
  const auto tile_b = [&](int step) { return TileB{tile_a(step).memory + TileA::kBytes}; };
  const auto copy = [&](int step) {
    if (bug == Bug::misaligned_row) cp_async_16(tile_a(step).memory + 8, a);
    tile_a(step).copy_from<true>(a, 128, 0, 32 * step, 16, 128, thread(), 64);
    tile_b(step).copy_from<true>(b, 16, 32 * step, 0, 128, 16, thread(), 64);
    if (bug == Bug::tile_past_end) cp_async_16(tile_a(1).memory + TileA::kBytes + TileB::kBytes, a);
    if (bug != Bug::no_commit) cp_async_commit();
  };
  float sum[4] = {};
  const int lane = thread() % 32, warp = thread() / 32;
  copy(0);
  for (int step = 0; step < kStepsA; ++step) {
    if (bug != Bug::stage_reused_early) sync_threads();  // everyone is done with the other stage
    if (step + 1 < kStepsA) copy(step + 1);
    if (step + 1 == kStepsA) cp_async_commit();
    if (bug != Bug::no_copy_wait) cp_async_wait<1>();
    if (bug != Bug::no_barrier_after_copy) sync_threads();
    for (int k = 0; k < 32; k += 16) {
      std::uint32_t fa[4], fb[4];
      tile_a(step).load(fa, 0, k);
      if (bug == Bug::wrong_chunk_permutation)
        ldmatrix_x4(fa, tile_a(step).memory + (lane % 16 * 4 + ((k / 8 + lane / 16) ^ (lane % 4))) * 16);
      if (bug == Bug::not_transposed)
        tile_b(step).load(fb, k, 0);
      else
        tile_b(step).load_pair_transposed(fb, k, 0);
      mma_m16n8k16<bf16>(sum, fa, fb + 2 * warp);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const int half = bug == Bug::wrong_fragment ? i % 2 : i / 2, odd = bug == Bug::wrong_fragment ? i / 2 : i % 2;
    d[(lane / 4 + 8 * half) * 16 + 8 * warp + lane % 4 * 2 + odd] = sum[i];
  }
  if (bug != Bug::no_copy_wait && bug != Bug::no_commit) cp_async_wait<0>();
}

bool ampere_is_right(Bug bug) {
  Buffer<bf16> a(16 * 128), b(128 * 16);
  Buffer<float> d(256);
  a.fill_random(1);
  b.fill_random(2);
  launch({"ampere", {1, 1, 1}, {64, 1, 1}, 2 * (16 * 64 + 32 * 128)}, ampere, bug, a.data(), b.data(), d.data());
  bool right = true;
  for (std::size_t m = 0; m < 16; ++m)
    for (std::size_t n = 0; n < 16; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < 128; ++k) sum += a.at(m * 128 + k) * b.at(k * 16 + n);
      right = right && std::abs(d.at(m * 16 + n) - sum) < 1e-4;
    }
  return right;
}

// ---- Hopper: d [64, 32] = a [64, 64 kSteps] b^T [32, 64 kSteps], one consumer warp group, one producer warp ---------

constexpr int kSteps = 5, kStages = 2;
constexpr int kBytesA = 64 * 128, kBytesB = 32 * 128, kBytesD = 64 * 32 * 4;

std::uint64_t descriptor(const std::byte* tile, int stride) {
  return (shared_address(tile) >> 4) | (static_cast<std::uint64_t>(stride >> 4) << 32) | (std::uint64_t{1} << 62);
}

struct Ring {
  std::byte *a, *b;
  std::uint64_t *full, *empty;
};

void produce(Bug bug, const Ring& ring, const TensorMap& a, const TensorMap& b) {
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % kStages;
    const auto parity = static_cast<std::uint32_t>(step / kStages % 2);
    mbarrier_wait(ring.empty + slot, bug == Bug::wrong_phase ? parity : parity ^ 1U);
    const int bytes = kBytesA + kBytesB - (bug == Bug::wrong_byte_count ? 128 : 0);
    mbarrier_arrive_expect(ring.full + slot, bytes);
    if (bug == Bug::wrong_map_dims)
      tma_load_3d(ring.a + slot * kBytesA, a, 64 * step, 0, 0, ring.full + slot);
    else
      tma_load_2d(ring.a + slot * kBytesA, a, 64 * step + (bug == Bug::load_at_part_of_16_bytes ? 4 : 0), 0,
                  ring.full + slot);
    if (bug != Bug::missing_load || step != 2) tma_load_2d(ring.b + slot * kBytesB, b, 64 * step, 0, ring.full + slot);
  }
}

void consume(Bug bug, const Ring& ring, float (&sum)[16]) {
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % kStages;
    mbarrier_wait(ring.full + slot, static_cast<std::uint32_t>(step / kStages % 2));
    if (bug == Bug::early_release) mbarrier_arrive(ring.empty + slot);
    wgmma_fence();
    for (int k = 0; k < 4; ++k) {
      const int stride = bug == Bug::wrong_descriptor_stride ? 512 : 1024;
      const int advance = (bug == Bug::wrong_k_advance ? 16 : 32) * k;
      wgmma_m64k16<bf16, 32>(sum, descriptor(ring.a + slot * kBytesA + advance, stride),
                             descriptor(ring.b + slot * kBytesB + advance, 1024), true);
    }
    if (bug != Bug::no_wgmma_commit) wgmma_commit();
    if (bug == Bug::touched_accumulators) sum[0] += 0.25F;
    if (bug != Bug::no_wgmma_wait) wgmma_wait<0>();
    if (bug != Bug::early_release) mbarrier_arrive(ring.empty + slot);
    if (bug == Bug::too_many_arrivals) mbarrier_arrive(ring.empty + slot);
  }
}

__global__ void __launch_bounds__(256, 1) hopper(Bug bug, TensorMap a, TensorMap b, TensorMap d) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, barriers, 2 * kStages);
  const Ring ring = {memory, memory + kStages * kBytesA, barriers, barriers + kStages};
  auto* const out = reinterpret_cast<float*>(memory + kStages * (kBytesA + kBytesB));  // [64, 32]
  if (thread() == 0 && bug != Bug::uninitialised_barrier) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(ring.full + i, 1);
      mbarrier_init(ring.empty + i, 128);
    }
    if (bug != Bug::no_init_fence) fence_mbarrier_init();
  }
  if (bug != Bug::no_barrier_after_init) sync_threads();
  if (thread() >= 128) {
    set_max_registers_down<24>();
    if (thread() == 128) produce(bug, ring, a, b);
    return;
  }
  if (bug == Bug::registers_wrong_way) set_max_registers_up<40>();
  float sum[16] = {};
  consume(bug, ring, sum);
  for (int i = 0; i < 16; ++i)
    out[(16 * (thread() / 32) + thread() % 32 / 4 + 8 * (i / 2 % 2)) * 32 + 8 * (i / 4) + thread() % 4 * 2 + i % 2] =
        sum[i];
  if (bug != Bug::no_proxy_fence) fence_async_proxy();
  barrier_sync(1, 128);
  if (thread() == 0) {
    tma_store_2d(d, out, 0, bug == Bug::store_at_negative_row ? -1 : 0);
    tma_store_commit();
    if (bug != Bug::no_store_wait) tma_store_wait<0>();
  }
}

template <class T>
TensorMap map_of(Buffer<T>& tensor, std::int64_t columns, std::int64_t rows, int box_columns, int box_rows,
                 Swizzle swizzle) {
  TensorMap map;
  map.base = reinterpret_cast<std::byte*>(tensor.data());
  map.rank = 2;
  map.element_bytes = sizeof(T);
  map.size = {columns, rows};
  map.stride = {sizeof(T), columns * static_cast<std::int64_t>(sizeof(T))};
  map.box = {box_columns, box_rows};
  map.swizzle = swizzle;
  emu::check_tensor_map("planted", "tensor", map);
  return map;
}

bool hopper_is_right(Bug bug) {
  constexpr std::size_t k_all = 64 * kSteps - 8;  // the last tile extends beyond the edge
  Buffer<bf16> a(64 * k_all), b(32 * k_all);
  Buffer<float> d(64 * 32);
  a.fill_random(1);
  b.fill_random(2);
  const Swizzle swizzle = bug == Bug::wrong_map_swizzle ? Swizzle::b64 : Swizzle::b128;
  launch({"hopper", {1, 1, 1}, {256, 1, 1}, kStages * (kBytesA + kBytesB) + kBytesD}, hopper, bug,
         map_of(a, k_all, 64, 64, 64, swizzle), map_of(b, k_all, 32, 64, 32, Swizzle::b128),
         map_of(d, 32, 64, 32, 64, Swizzle::none));
  bool right = true;
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t n = 0; n < 32; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < k_all; ++k) sum += a.at(m * k_all + k) * b.at(n * k_all + k);
      right = right && std::abs(d.at(m * 32 + n) - sum) < 1e-4;
    }
  return right;
}

// ---- the table ------------------------------------------------------------------------------------------------------

bool is_right(Bug bug, Bug first_of_kernel) {
  if (first_of_kernel == Bug::no_copy_wait) return ampere_is_right(bug);
  if (first_of_kernel == Bug::wrong_phase) return hopper_is_right(bug);
  return sums_are_right(bug);
}

Bug kernel_of(Bug bug) {
  if (bug >= Bug::wrong_phase) return Bug::wrong_phase;
  return bug >= Bug::no_copy_wait ? Bug::no_copy_wait : Bug::no_barrier_before_read;
}

/// What the first schedule that shows the bug says; empty when none of eight does.
std::string caught(Bug bug) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const emu::ScopedSchedule schedule({seed});
    const std::string report = cuda_test::report_of([&] {
      if (!is_right(bug, kernel_of(bug))) fail(ExitCode::internal, "planted", "wrong result");
    });
    if (!report.empty()) return report;
  }
  return {};
}

}  // namespace

TEST_CASE("planted bugs: the kernels without one are right under sixteen schedules") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    const emu::ScopedSchedule schedule({seed});
    CHECK(sums_are_right(Bug::none));
    CHECK(ampere_is_right(Bug::none));
    CHECK(hopper_is_right(Bug::none));
  }
}

TEST_CASE("planted bugs: every one is caught") {
  for (int i = 1; i <= static_cast<int>(Bug::last); ++i) {
    CAPTURE(i);
    const std::string report = caught(static_cast<Bug>(i));
    INFO("bug ", i, ": ", report);
    CHECK(!report.empty());
  }
}

TEST_CASE("planted bugs: reports name the line, the threads and what they wait for") {
  const auto has = [](Bug bug, const char* text) { return caught(bug).find(text) != std::string::npos; };
  CHECK(has(Bug::barrier_in_branch, "deadlock in block (0, 0, 0)"));
  CHECK(has(Bug::shuffle_in_branch, "warp 0 diverged"));
  CHECK(has(Bug::short_shared_array, emu::zones_are_poisoned ? "use-after-poison" : "past their end"));
  CHECK(has(Bug::misaligned_row, "not a multiple of 16"));
  CHECK(has(Bug::tile_past_end, "outside every shared allocation"));
  CHECK(has(Bug::wrong_map_dims, "an instruction for 3 dims; expected 2"));
  CHECK(has(Bug::no_init_fence, "no fence made that visible"));
  CHECK(has(Bug::missing_load, "of an mbarrier at planted_test.cpp:"));
  CHECK(has(Bug::load_at_part_of_16_bytes, "TMA load: innermost coordinate 4, which is 8 bytes"));
  CHECK(has(Bug::store_at_negative_row, "TMA store: coordinate -1 of dim 1"));
}

}  // namespace planted_test
