// Planted mistakes with the registers of wgmma: a missing wgmma.fence, and accesses before the wait. Most leave the
// results right under emulation. Each must be reported under every schedule, by the builds that the table names.
// Compiled for all three builds: cuda_test, cuda_race_test and cuda_asan_test.
//
// A comment "// @name" in the kernel marks the line that the race build has to name.
// Read next: cuda/emu/wgmma_registers.h.
#include <doctest/doctest.h>

#include "cuda/kernels/gemm_tiles_sm90.h"
#include "tests/cuda/report.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace planted_wgmma_test {
namespace {

enum class Bug : std::uint8_t {
  none,
  no_fence,
  no_fence_after_sums,
  no_fence_after_fragment,
  sums_written_after_fence,
  sums_read_after_fence,
  fragment_written_after_fence,
  sums_read_in_flight,
  sums_written_in_flight,
  sums_scaled_in_flight,
  fragment_written_in_flight,
  fragment_read_in_flight,
  other_shape_in_flight,
  no_wait,
};

constexpr int kM = 64, kN = 32, kK = 64;

/// b [32, 64], K fastest, in the 128-byte swizzle.
void write_operand(std::byte* memory, const bf16* b) {
  for (int i = static_cast<int>(threadIdx.x); i < kN * kK; i += 128) {
    const std::uint32_t at = shared_address(memory) + static_cast<std::uint32_t>(128 * (i / kK) + 2 * (i % kK));
    *reinterpret_cast<bf16*>(memory + (swizzled(Swizzle::b128, at) - shared_address(memory))) = b[i];
  }
}

void load_fragment(std::uint32_t (&fragment)[4], const bf16* a, int k) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int i = 0; i < 4; ++i) {
    const bf16* const pair = a + (16 * warp + lane / 4 + 8 * (i % 2)) * kK + k + 2 * (lane % 4) + 8 * (i / 2);
    fragment[i] = pair[0].bits | static_cast<std::uint32_t>(pair[1].bits) << 16;  // @fragment
  }
}

/// d [64, 32] = a [64, 64] times the transpose of b [32, 64], in one warp group; A from registers.
__global__ void __launch_bounds__(128, 1) product(Bug bug, const bf16* a, const bf16* b, float* d) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  write_operand(memory, b);
  fence_async_proxy();
  sync_threads();
  float sums[kN / 2], read = 0;
  std::uint32_t fragment[4], bits = 0;
  for (float& sum : sums) sum = 0;
  load_fragment(fragment, a, 0);
  for (int k = 0; k < kK; k += 16) {
    const bool without =
        bug == Bug::no_fence || (k > 0 && (bug == Bug::no_fence_after_sums || bug == Bug::no_fence_after_fragment));
    if (!without) wgmma_fence();
    if (bug == Bug::sums_written_after_fence) sums[1] = k == 0 ? 0 : sums[1] + 0.0F;  // @sums after fence
    if (bug == Bug::sums_read_after_fence) read += sums[3];                           // @sums read after fence
    if (bug == Bug::fragment_written_after_fence) load_fragment(fragment, a, k);
    wgmma_m64k16_registers<bf16, kN>(sums, fragment, sm90::descriptor<true>(memory, k), k > 0);
    wgmma_commit();
    if (bug == Bug::sums_read_in_flight) read += sums[2];          // @sums read in flight
    if (bug == Bug::sums_written_in_flight) sums[5] = 1;           // @sums in flight
    if (bug == Bug::sums_scaled_in_flight) sums[6] *= 2;           // @sums scaled in flight
    if (bug == Bug::fragment_read_in_flight) bits += fragment[1];  // @fragment read in flight
    if (bug == Bug::fragment_written_in_flight && k + 16 < kK) load_fragment(fragment, a, k + 16);
    if (bug == Bug::other_shape_in_flight) {
      wgmma_fence();
      wgmma_m64k16_registers<bf16, 16>(sums, fragment, sm90::descriptor<true>(memory, k), true);
      wgmma_commit();
    }
    if (bug != Bug::no_wait) wgmma_wait<0>();
    if (bug == Bug::no_fence_after_sums) sums[0] *= 2;  // @sums between
    if (bug != Bug::no_fence_after_sums && k + 16 < kK && bug != Bug::no_wait) load_fragment(fragment, a, k + 16);
  }
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  sums[0] += read == 12345.0F || bits == 12345U ? 1.0F : 0.0F;  // never: only uses what was read
  for (int i = 0; i < kN / 2; ++i)
    d[(16 * warp + lane / 4 + 8 * (i / 2 % 2)) * kN + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = sums[i];
}

std::string report(Bug bug) {
  return error_of([bug] {
    Buffer<bf16> a(kM * kK), b(kN * kK);
    Buffer<float> d(kM * kN);
    for (std::size_t i = 0; i < a.size(); ++i) a.set(i, bf16(static_cast<float>(i % 7) - 3));
    for (std::size_t i = 0; i < b.size(); ++i) b.set(i, bf16(static_cast<float>(i % 5) - 2));
    launch({"product", {1, 1, 1}, {128, 1, 1}, 128 * kN}, product, bug, a.data(), b.data(), d.data());
    for (std::size_t i = 0; i < d.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < kK; ++k) sum += a.at(i / kN * kK + k) * b.at(i % kN * kK + k);
      if (d.at(i) != sum) fail(ExitCode::internal, "product", "a wrong result");
    }
  });
}

/// What the race build says, and the others (`plain`); empty: nothing. `mark`: the line that the race build names.
struct Planted {
  Bug bug;
  const char *plain, *race, *mark;
};

constexpr const char *kFence = "with no wgmma.fence between", *kFlight = "which is in flight; wait for its group first";

const Planted kPlanted[] = {
    {Bug::none, "", "", nullptr},
    {Bug::no_fence, "no wgmma.fence before it", "no wgmma.fence before it", nullptr},
    {Bug::no_fence_after_sums, "wrote sums since the product at planted_wgmma_test.cpp:", kFence, "@sums between"},
    {Bug::no_fence_after_fragment, "wrote A registers since the product at", kFence, "@fragment"},
    {Bug::sums_written_after_fence, "", kFence, "@sums after fence"},
    {Bug::sums_read_after_fence, "", kFence, "@sums read after fence"},
    {Bug::fragment_written_after_fence, "", kFence, "@fragment"},
    {Bug::sums_read_in_flight, "", kFlight, "@sums read in flight"},
    {Bug::sums_written_in_flight, "wrote sums of the product at planted_wgmma_test.cpp:", kFlight, "@sums in flight"},
    {Bug::sums_scaled_in_flight, "wrote sums of the product at", kFlight, "@sums scaled in flight"},
    {Bug::fragment_written_in_flight, "wrote A registers of the product at", kFlight, "@fragment"},
    {Bug::fragment_read_in_flight, "", kFlight, "@fragment read in flight"},
    {Bug::other_shape_in_flight, "n = 32 there, 16 here", "n = 32 there, 16 here", nullptr},
    {Bug::no_wait, "wgmma is in flight when the block ends", kFlight, nullptr},
};

}  // namespace

TEST_CASE("planted wgmma: mistakes with registers are reported under every schedule") {
#if defined(__SANITIZE_THREAD__)
  constexpr bool race = true;
#else
  constexpr bool race = false;
#endif
  for (const Planted& planted : kPlanted)
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      CAPTURE(static_cast<int>(planted.bug));
      CAPTURE(seed);
      const emu::ScopedSchedule schedule({seed});
      const std::string said = report(planted.bug), text = race ? planted.race : planted.plain;
      CAPTURE(said);
      CHECK(text.empty() == said.empty());
      CHECK(said.find(text) != std::string::npos);
      if (race && planted.mark != nullptr)
        CHECK(said.find(cuda_test::line_of("planted_wgmma_test.cpp", planted.mark)) != std::string::npos);
    }
}

}  // namespace planted_wgmma_test
