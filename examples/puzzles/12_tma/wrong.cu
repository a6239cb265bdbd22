// Puzzle 12: wrong kernels, most of which give the right sums when copies are fast, each with a part of the message that
// it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <algorithm>

#include "examples/puzzles/12_tma/puzzle.h"

namespace trireme::puzzles::tma {
namespace {

using namespace cuda;

using Kernel = void(TensorMap, float*, int, int);

Answer wrong(std::string name, Kernel* sums, std::string expected) {
  return answer(std::move(name),
                {sums, [](int tile) { return tile / kStages % 2; }, [](int) -> int { return kTileBytes; }},
                std::move(expected));
}

/// What is wrong. Everything else is right.
enum class Bug : std::uint8_t {
  no_barrier,
  no_fence,
  expects_rows_inside,
  no_wait_for_empty,
  no_wait_for_full,
  parity_never_changes,
  empty_counts_warps,
  one_thread_arrives,
  arrives_before_reading,
  no_swizzle,
  one_stage,
  two_stages,
  every_lane_copies,
  no_edge,
  copies_too_many,
};

template <Bug kBug>
__global__ void sums(const __grid_constant__ TensorMap map, float* y, int rows, int columns) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, full, kStages);
  TRIREME_SHARED(std::uint64_t, empty, kStages);
  constexpr int stages = kBug == Bug::one_stage ? 1 : kBug == Bug::two_stages ? 2 : kStages;
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kColumns;
  const int tiles = (rows + kRows - 1) / kRows, copies = tiles + (kBug == Bug::copies_too_many ? 1 : 0);
  const auto phase_of = [&](int tile) {
    return kBug == Bug::parity_never_changes ? 0U : static_cast<std::uint32_t>(tile / stages % 2);
  };
  if (thread == 0) {
    for (int s = 0; s < stages; ++s) {
      mbarrier_init(full + s, 1);
      mbarrier_init(empty + s, kBug == Bug::empty_counts_warps   ? kColumns / 32
                               : kBug == Bug::one_thread_arrives ? 1
                                                                 : kColumns);
    }
    if (kBug != Bug::no_fence) fence_mbarrier_init();
  }
  if (kBug != Bug::no_barrier) sync_threads();

  const bool copier = kBug == Bug::every_lane_copies ? thread >= kColumns : thread == kColumns;
  for (int tile = 0; copier && tile < copies; ++tile) {
    const int s = tile % stages;
    if (kBug != Bug::no_wait_for_empty) mbarrier_wait(empty + s, static_cast<std::uint32_t>(tile / stages % 2) ^ 1U);
    const int inside = std::min(kRows, rows - tile * kRows);
    mbarrier_arrive_expect(full + s, kBug == Bug::expects_rows_inside ? inside * 2 * kColumns : kTileBytes);
    tma_load_2d(memory + s * kTileBytes, map, first, tile * kRows, full + s);
  }
  if (thread >= kColumns) return;
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const int s = tile % stages;
    if (kBug != Bug::no_wait_for_full) mbarrier_wait(full + s, phase_of(tile));
    if (kBug == Bug::arrives_before_reading) mbarrier_arrive(empty + s);
    for (int row = 0; row < kRows; ++row) {
      const auto* const plain = reinterpret_cast<const bf16*>(memory + s * kTileBytes) + row * kColumns + thread;
      sum += to_float(kBug == Bug::no_swizzle ? *plain : *element(memory + s * kTileBytes, row, thread));
    }
    if (kBug != Bug::arrives_before_reading && (thread == 0 || kBug != Bug::one_thread_arrives))
      mbarrier_arrive(empty + s);
  }
  if (first + thread < columns || kBug == Bug::no_edge) y[first + thread] = sum;
}

/// Threads use the mbarriers while thread 0 initialises them.
const Registered a1(wrong("no barrier after the initialisation", sums<Bug::no_barrier>, "an mbarrier"));
/// The TMA unit may see what was in shared memory before.
const Registered a2(wrong("no fence after the initialisation", sums<Bug::no_fence>, "no fence made that visible"));
/// The zeros for rows outside are bytes, too: the phase never ends.
const Registered a3(wrong("expects only the rows inside", sums<Bug::expects_rows_inside>, "deadlock"));
/// The next tile of a stage is announced while the one before is still on its way.
const Registered a4(wrong("does not wait until a stage is empty", sums<Bug::no_wait_for_empty>,
                          "more arrivals than the 1"));
/// A stage is read that is not there yet.
const Registered a5(wrong("does not wait until a stage is full", sums<Bug::no_wait_for_full>,
                          "which nobody wrote before"));
/// From the second round on, the wait for a tile passes at once. So threads arrive at `empty` twice, and a phase goes by
/// that the thread that copies still waits for.
const Registered a6(wrong("always the same parity", sums<Bug::parity_never_changes>, "deadlock"));
/// One arrival for each warp is expected, and 32 come: phases end before anybody waits for them.
const Registered a7(wrong("empty expects one arrival a warp", sums<Bug::empty_counts_warps>, "deadlock"));
/// Gives a stage back, and then reads it.
const Registered a8(wrong("gives a stage back too early", sums<Bug::arrives_before_reading>, "nothing orders the two"));
/// Gives a stage back when thread 0 has read it, though others may still read.
const Registered a16(wrong("one thread gives a stage back", sums<Bug::one_thread_arrives>, "nothing orders the two"));
/// Reads row by row, as if TMA had not permuted the pieces: right for the first row, and for x with one row.
const Registered a9(wrong("no swizzle", sums<Bug::no_swizzle>, "x [16, 64]: y: "));
/// Nothing is copied while the threads add.
const Registered a10(wrong("one stage", sums<Bug::one_stage>, "in flight at the same time: 1; expected 3"));
const Registered a11(wrong("two stages", sums<Bug::two_stages>, "in flight at the same time: 2; expected 3"));
/// All 32 lanes of the last warp start the copy.
const Registered a12(wrong("every lane copies", sums<Bug::every_lane_copies>, "more arrivals than the 1"));
/// The last strip of columns is not whole.
const Registered a13(wrong("writes beyond y", sums<Bug::no_edge>, "outside of y [8]"));
/// One copy too many, which nobody waits for: it writes to shared memory when that may belong to another block.
const Registered a14(wrong("a copy that nobody waits for", sums<Bug::copies_too_many>,
                           "in flight when the block ends"));

/// The right mbarriers, and a barrier for each tile instead of `empty`.
__global__ void with_barriers(const __grid_constant__ TensorMap map, float* y, int rows, int columns) {
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  TRIREME_SHARED(std::uint64_t, full, kStages);
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(blockIdx.x) * kColumns;
  const int tiles = (rows + kRows - 1) / kRows;
  const auto copy = [&](int tile) {
    if (thread != kColumns || tile >= tiles) return;
    mbarrier_arrive_expect(full + tile % kStages, kTileBytes);
    tma_load_2d(memory + tile % kStages * kTileBytes, map, first, tile * kRows, full + tile % kStages);
  };
  for (int s = 0; s < kStages && thread == 0; ++s) mbarrier_init(full + s, 1);
  if (thread == 0) fence_mbarrier_init();
  sync_threads();
  for (int tile = 0; tile < kStages; ++tile) copy(tile);
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    mbarrier_wait(full + tile % kStages, static_cast<std::uint32_t>(tile / kStages % 2));
    for (int row = 0; row < kRows && thread < kColumns; ++row)
      sum += to_float(*element(memory + tile % kStages * kTileBytes, row, thread));
    sync_threads();
    copy(tile + kStages);
  }
  if (thread < kColumns && first + thread < columns) y[first + thread] = sum;
}
const Registered a15(wrong("a barrier for each tile", with_barriers, "barriers of a block: 11, and the budget is 1"));

}  // namespace
}  // namespace trireme::puzzles::tma
