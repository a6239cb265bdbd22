// The harness of the puzzles: what it says of results and budgets.
// Read next: tests/labs/labs_test.cpp, which grades all answers; examples/puzzles/harness/trial.h.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "examples/puzzles/harness/trial.h"

namespace trireme::puzzles {
namespace {

/// "check: message" of each check that failed.
std::vector<std::string> failures(const std::function<void(Grading&)>& grade) {
  std::vector<std::string> all;
  Grading grading(1, [&](const labs::Check& check, bool ended) {
    if (ended && !check.passed) all.push_back(check.name + ": " + check.message);
  });
  grade(grading);
  return all;
}

std::string only_failure(const std::function<void(Grading&)>& grade) {
  const std::vector<std::string> all = failures(grade);
  return all.size() == 1 ? all.front() : std::to_string(all.size()) + " failures";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

__global__ void copy_32(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy_far(const float* x, float* y) { y[threadIdx.x] = x[8 * threadIdx.x]; }
__global__ void nothing(const float*, float*) {}
/// The thread that comes last to its turn has the last word: other bits under other schedules, and a race.
__global__ void through_shared(const float* x, float* y) {
  TRIREME_SHARED(float, slab, 32 * 32);
  slab[32 * threadIdx.x] = x[threadIdx.x];
  cuda::sync_threads();
  y[threadIdx.x] = slab[32 * threadIdx.x];
}

Tensor run(void (*kernel)(const float*, float*), const Tensor& values) {
  Array<float> x("x", values), y("y", 32);
  cuda::launch({"copy", {1, 1, 1}, {32, 1, 1}}, kernel, x.data(), y.data());
  return y.tensor({32});
}

}  // namespace

TEST_CASE("puzzles: a result is compared, and a kernel that does nothing is named as such") {
  const auto failure = [](void (*kernel)(const float*, float*), std::int64_t count) {
    return only_failure([&](Grading& grading) {
      const Tensor x = grading.random({count});
      grading.check("copy", [&] {
        expect_result(grading, {.label = "n = 32", .name = "y", .run = [&] { return run(kernel, x); }, .want = x});
      });
    });
  };
  CHECK(failure(copy_32, 32) == "0 failures");
  CHECK(failure(through_shared, 32) == "0 failures");
  CHECK(failure(nothing, 32) == "copy: n = 32: the kernel does nothing: not one load or store of it was seen");
  CHECK(contains(failure(copy_far, 32), "x[32], outside of x [32]"));
}

TEST_CASE("puzzles: budgets name the line, the count and the budget") {
  const Tensor x = Tensor::zeros({256});
  const auto failure = [&](void (*kernel)(const float*, float*), const Budget& budget,
                           const std::vector<ArrayBudget>& arrays) {
    return only_failure([&](Grading& grading) {
      check_budget(
          grading, "n = 32", [&] { run(kernel, x); }, budget, arrays);
    });
  };
  CHECK(failure(copy_32, {}, {{"x", 4, 0}, {"y", 0, 4}}) == "0 failures");
  CHECK(contains(failure(copy_far, {}, {}), "reads x in 32 sectors of 32 bytes, where 4 would hold"));
  CHECK(contains(failure(copy_32, {}, {{"x", 3, 0}}), "x is read in 4 sectors of 32 bytes, and the budget is 3"));
  CHECK(contains(failure(through_shared, {}, {}),
                 "in 32 wavefronts, where 1 would do without bank conflicts; the "
                 "kernel has 62 conflicts in all, and the budget is 0"));
  CHECK(contains(failure(through_shared, {.bank_conflicts = 62, .shared_bytes = 100}, {}),
                 "4096 bytes of shared memory, and the budget is 100"));
  CHECK(contains(failure(through_shared, {.bank_conflicts = 62, .wavefronts = 60}, {}), "busy for 64 wavefronts"));
  CHECK(contains(failure(through_shared, {.bank_conflicts = 62, .accesses = 1}, {}),
                 "load from and store to shared memory 2 times, and the budget is 1"));
  CHECK(contains(failure(through_shared, {.bank_conflicts = 62, .barriers = 0}, {}),
                 "barriers of a block: 1, and the budget is 0"));
  CHECK(contains(failure(through_shared, {.bank_conflicts = 62, .reads_without_copies = 0.5}, {}),
                 "100% are made while no cp.async is in flight, and the budget is 50%"));
  CHECK(contains(failure(copy_32, {.tma_loads = 2}, {}), "in flight at the same time: 0; expected 2"));
}

TEST_CASE("puzzles: an array knows when it is an input") {
  Array<float> y("y", 32);
  CHECK(y.values().size() == 32);
  y.use_as(Use::input);
  const Array<float> shifted("shifted", 32, 1);
  CHECK(reinterpret_cast<std::uintptr_t>(shifted.values().data()) % 32 == 4);
}

}  // namespace trireme::puzzles
