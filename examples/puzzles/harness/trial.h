// How a puzzle's grader tries a kernel: under several schedules with every access checked, then once more with every
// access counted, against the puzzle's budget.
//
//   grading.check("every length", [&] {
//     for (const int n : {1, 31, 33, 1000})
//       expect_result(grading, {.label = fmt::format("n = {}", n), .name = "c", .run = [&] { ... }, .want = ...});
//   });
//   check_budget(grading, "n = 4096", [&] { ... }, {.barriers = 1}, {{"a", 512, 0}, {"c", 0, 512}});
//
// Read next: examples/puzzles/harness/trial.cpp; examples/puzzles/01_map/grader.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/emu/traffic.h"
#include "examples/labs/harness/difference.h"
#include "examples/puzzles/harness/array.h"
#include "examples/puzzles/harness/puzzle.h"

namespace trireme::puzzles {

/// A result that a kernel must give.
struct Trial {
  std::string label;            ///< begins the message: "n = 257"
  std::string name;             ///< of the result
  std::function<Tensor()> run;  ///< launches, and returns the result
  Tensor want;                  ///< in f64, from the CPU
  labs::Comparison comparison = {};
  int schedules =
      4;  ///< fifo, lifo, random, random priorities; with other times of asynchronous copies from the fifth on
};

/// Fails unless the result is right and has the same bits under every schedule, without a race, an access outside an
/// array, a read of what nobody wrote, a write to an input, or a barrier that threads do not reach.
void expect_result(Grading& grading, const Trial& trial);

/// What a kernel may cost. What has no default is not limited unless it is given.
struct Budget {
  static constexpr std::uint64_t any = ~std::uint64_t{0};
  std::uint64_t bank_conflicts = 0;  ///< wavefronts beyond those that the same bytes need
  std::uint64_t excess_sectors = 0;  ///< sectors beyond those that the bytes of each access would fill
  std::uint64_t wavefronts = any;    ///< of shared memory, in the whole grid
  std::uint64_t shared_bytes = any;  ///< of a block
  std::uint64_t barriers = any;      ///< of a block
  std::uint64_t accesses = any;      ///< of shared memory, in the whole grid: loads and stores by a warp
  double reads_without_copies = 1;   ///< of all loads of shared memory, the part made while no cp.async is in flight
  std::uint64_t tma_loads = 0;       ///< of a block, that must be in flight at the same time
};

/// How many sectors of 32 bytes all warps may read and write of an array; of other arrays, any number.
struct ArrayBudget {
  std::string array;
  std::uint64_t read, written;
};

/// What the launches in `run` cost.
cuda::emu::Traffic counted(const std::function<void()>& run);

/// Checks that `run` keeps to the budget, and shows what each line costs.
void check_budget(Grading& grading, const std::string& label, const std::function<void()>& run, const Budget& budget,
                  const std::vector<ArrayBudget>& arrays);

/// Rounded up.
constexpr std::uint64_t sectors_of_floats(std::uint64_t count) { return (count + 7) / 8; }

}  // namespace trireme::puzzles
