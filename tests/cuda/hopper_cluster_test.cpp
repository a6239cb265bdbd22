// Clusters on their own: two or four blocks fill each other's stages by multicast TMA, tell each other by arrivals at
// mbarriers when a stage is free, and wait for each other before they end. Under emulation the same kernel also runs
// with mistakes, each of which must be caught.
// Read next: cuda/kernels/gemm_tiles_sm90.h, which uses clusters this way.
#include <doctest/doctest.h>

#include "cuda/kernels/tile.h"
#include "tests/cuda/hopper_support.h"
#include "tests/cuda/report.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace hopper_cluster_test {
namespace {

enum class Bug : std::uint8_t {
  none,
  no_wait_after_init,
  no_wait_at_end,
  released_to_self,
  too_many_arrivals,
  own_bytes_only,
  load_for_self,
  load_beyond_cluster,
  arrival_beyond_cluster,
  no_init_fence,
  last = no_init_fence,
};

constexpr int kRows = 64, kColumns = 64, kTile = kRows * kColumns, kTileBytes = 2 * kTile;
constexpr int kSteps = 5, kStages = 2;

/// Each block writes all tiles of in [64, 64 kSteps], to out [blocks, kSteps,
/// 64, 64]. Block b loads rows b 64 / kBlocks on for all. Warp 0 copies, warp 1 reads.
template <int kBlocks, Bug bug>
__global__ void ring(const __grid_constant__ TensorMap in, float* out) {
#if TRIREME_HOPPER_CODE
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, barriers, 2 * kStages);
  std::uint64_t *const full = barriers, *const empty = barriers + kStages;
  constexpr int kArrivals = bug == Bug::too_many_arrivals || bug == Bug::released_to_self ? 1 : kBlocks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, rank = cluster_rank();
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + i, 1);
      mbarrier_init(empty + i, kArrivals);
    }
    if constexpr (bug != Bug::no_init_fence) fence_mbarrier_init();
  }
  if constexpr (bug == Bug::no_wait_after_init)
    sync_threads();
  else
    sync_cluster();
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % kStages;
    const auto parity = static_cast<std::uint32_t>(step / kStages % 2);
    std::byte* const stage = memory + slot * kTileBytes;
    if (thread == 0) {
      constexpr int kShare = kRows / kBlocks;
      constexpr std::uint32_t kAll = bug == Bug::load_beyond_cluster ? (2U << kBlocks) - 1 : (1U << kBlocks) - 1;
      mbarrier_wait(empty + slot, parity ^ 1U);
      mbarrier_arrive_expect(full + slot, bug == Bug::own_bytes_only ? kTileBytes / kBlocks : kTileBytes);
      tma_load_3d_multicast(stage + rank * kShare * 128, in, 64 * step, rank * kShare, 0, full + slot,
                            bug == Bug::load_for_self ? 1U << rank : kAll);
    } else if (thread >= 32) {
      mbarrier_wait(full + slot, parity);
      for (int i = lane; i < kTile; i += 32) {
        const std::uint32_t begin = shared_address(stage);
        const std::uint32_t at = swizzled(Swizzle::b128, begin + static_cast<std::uint32_t>(2 * i)) - begin;
        const float value = to_float(*reinterpret_cast<const f16*>(stage + at));
        out[((static_cast<int>(blockIdx.x) * kSteps) + step) * kTile + i] = value;
      }
      sync_warp();
      const int to = bug == Bug::arrival_beyond_cluster ? lane + 1 : lane;
      if constexpr (bug == Bug::released_to_self) {
        if (lane == 0) mbarrier_arrive(empty + slot);
      } else if (lane < kBlocks) {
        mbarrier_arrive_at(empty + slot, to);
      }
    }
  }
  if constexpr (bug != Bug::no_wait_at_end) {
    sync_warp();
    sync_cluster();
  }
#endif
}

/// Two clusters. Elements of `in` tell where they are.
template <int kBlocks, Bug bug>
void run(Buffer<float>& out) {
  Buffer<f16> in(kRows * 64 * kSteps);
  for (std::size_t i = 0; i < in.size(); ++i) in.set(i, f16(coded(static_cast<int>(i % 4096))));
  const TensorMap map =
      tensor_map("hopper", TiledMatrix{"in", in.data(), kRows, 64 * kSteps, 64 * kSteps, 1, 0, kRows / kBlocks, 64});
  launch({"ring", {2 * kBlocks, 1, 1}, {64, 1, 1}, kStages * kTileBytes, nullptr, kBlocks}, ring<kBlocks, bug>, map,
         out.data());
}

template <int kBlocks>
void check() {
  Buffer<float> out(2 * kBlocks * kSteps * kTile);
  run<kBlocks, Bug::none>(out);
  const auto place = [](std::size_t i) {
    return std::array<int, 4>{static_cast<int>(i) / kTile / kSteps, static_cast<int>(i) / kTile % kSteps,
                              static_cast<int>(i) % kTile / 64, static_cast<int>(i) % 64};
  };
  compare({fmt::format("clusters of {} that fill each other's stages", kBlocks), out.size(),
           [&](std::size_t i) { return static_cast<double>(out.at(i)); },
           [&](std::size_t i) {
             const auto [block, step, row, column] = place(i);
             return static_cast<double>(coded((row * 64 * kSteps + 64 * step + column) % 4096));
           },
           [&](std::size_t i) {
             const auto [block, step, row, column] = place(i);
             return fmt::format("block {}, step {}, row {}, column {}", block, step, row, column);
           },
           [](double value) { return fmt::format("element {}", decoded(value)); }});
}

}  // namespace

TEST_CASE("hopper: blocks of a cluster fill each other's stages") {
  under_schedules([] {
    check<2>();
    check<4>();
  });
}

#if !defined(__CUDACC__)

namespace {

bool is_right(const Buffer<float>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t step = i / kTile % kSteps, row = i % kTile / 64, column = i % 64;
    if (out.at(i) != coded(static_cast<int>((row * 64 * kSteps + 64 * step + column) % 4096))) return false;
  }
  return true;
}

/// What the first of eight schedules that shows the bug says; empty when none does.
template <Bug bug>
std::string caught() {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const emu::ScopedSchedule schedule({seed});
    Buffer<float> out(4 * kSteps * kTile);
    const std::string report = cuda_test::report_of([&] {
      run<2, bug>(out);
      if (!is_right(out)) fail(ExitCode::internal, "planted", "wrong result");
    });
    if (!report.empty()) return report;
  }
  return {};
}

__global__ void nothing() {}

}  // namespace

TEST_CASE("planted bugs: mistakes of clusters are caught, and reports say which") {
  const auto has = [](const std::string& report, const char* text) {
    CAPTURE(report);
    CHECK(!report.empty());
    if (!emu::race_checking) CHECK(report.find(text) != std::string::npos);  // which may find a race before that
  };
  has(caught<Bug::no_wait_after_init>(), "has not come to its shared memory yet");
  has(caught<Bug::no_wait_at_end>(), "has ended, and its shared memory with it");
  CHECK(!caught<Bug::released_to_self>().empty());
  has(caught<Bug::too_many_arrivals>(), "more arrivals than the 1");
  CHECK(!caught<Bug::own_bytes_only>().empty());
  has(caught<Bug::load_for_self>(), "deadlock in block (");
  has(caught<Bug::load_beyond_cluster>(), "block 2 of the cluster; expected 0 to 1");
  has(caught<Bug::arrival_beyond_cluster>(), "block 2 of the cluster; expected 0 to 1");
  has(caught<Bug::no_init_fence>(), "no fence made that visible");
}

TEST_CASE("emulator: impossible clusters are refused") {
  const auto refusal = [](unsigned blocks, int cluster) {
    return cuda_test::error_of([&] { launch({"nothing", {blocks, 1, 1}, {32, 1, 1}, 0, nullptr, cluster}, nothing); });
  };
  CHECK(refusal(3, 2).find("3 blocks in x, in clusters of 2; expected a multiple") != std::string::npos);
  CHECK(refusal(32, 16).find("clusters of 16 blocks; expected 1 to 8") != std::string::npos);
  const emu::ScopedLimits limits(emu::a100);
  CHECK(refusal(4, 2).find("on a device of compute capability 8.0; expected 9.0") != std::string::npos);
}

#endif

}  // namespace hopper_cluster_test
