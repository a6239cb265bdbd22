// The order of samples: a function of the seed and the sample number, whatever the mesh; and the validation windows.
#include "data/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "data/eval_windows.h"
#include "helpers.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Tokens 0, 1, 2, ...: each token is its own position.
TokenRange counting(std::int64_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  TokenBuffer buffer(static_cast<std::int32_t>(count));
  buffer.append(ids);
  return TokenRange(in_memory(std::move(buffer)));
}

/// The samples of the step after `consumed`, in the order of ranks and their micro-batches.
std::vector<std::int64_t> step_samples(std::int64_t global, std::int64_t micro, int dp, std::int64_t consumed) {
  std::vector<std::int64_t> samples;
  for (int rank = 0; rank < dp; ++rank) {
    const BatchPlan plan{global, micro, rank, dp};
    plan.check();
    for (std::int64_t m = 0; m < plan.micro_batches(); ++m) {
      for (std::int64_t i = 0; i < micro; ++i) samples.push_back(plan.first_sample(consumed, m) + i);
    }
  }
  return samples;
}

std::vector<std::int64_t> from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

}  // namespace

TEST_CASE("a batch holds the windows of its samples, targets one further") {
  for (const std::int64_t count : {300, 70'000}) {  // u16 and i32
    const Sampler sampler(counting(count), 13, 42);
    const Batch batch = sampler.make_batch(1000, 5);
    CHECK(batch["inputs"].shape() == Shape{5, 13});
    CHECK(batch.sample_ids == from(1000, 5));
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t t = 0; t < 13; ++t) {
        CHECK(batch["inputs"].data<std::int32_t>()[row * 13 + t] == sampler.start(1000 + row) + t);
        CHECK(batch["targets"].data<std::int32_t>()[row * 13 + t] == sampler.start(1000 + row) + t + 1);
      }
    }
  }
}

TEST_CASE("starts are uniform, reach both ends, and depend on the seed") {
  const Sampler sampler(counting(30), 20, 1), other(counting(30), 20, 2);
  std::vector<int> seen(10, 0);
  int different = 0;
  constexpr int kSamples = 20'000;
  for (std::int64_t s = 0; s < kSamples; ++s) {
    const std::int64_t start = sampler.start(s);
    REQUIRE(start >= 0);
    REQUIRE(start < 10);  // 30 - 20: the last window ends at the last token
    ++seen[static_cast<std::size_t>(start)];
    different += start != other.start(s) ? 1 : 0;
  }
  for (const int count : seen) CHECK(std::abs(count - kSamples / 10) < 5 * std::sqrt(kSamples * 0.1 * 0.9));
  CHECK(std::abs(different - kSamples * 0.9) < 5 * std::sqrt(kSamples * 0.1 * 0.9));
  // Large sample numbers work as small ones do.
  CHECK_NOTHROW(sampler.start((std::int64_t{1} << 62)));
}

TEST_CASE("the samples of a step are the same for every dp and micro-batch size, and disjoint over ranks") {
  for (const int dp : {1, 2, 3, 4, 6, 12}) {
    for (const std::int64_t micro : {1, 2, 3, 4, 6, 12}) {
      if (12 % (micro * dp) != 0) continue;
      CHECK(step_samples(12, micro, dp, 240) == from(240, 12));
    }
  }
}

TEST_CASE("resuming on dp 4, then 2, then 3 skips nothing and repeats nothing") {
  std::vector<std::int64_t> seen;
  std::int64_t consumed = 0;
  for (const int dp : {4, 2, 3}) {
    for (int step = 0; step < 3; ++step, consumed += 12) {
      const auto samples = step_samples(12, 1, dp, consumed);
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
  }
  // A run with another global batch continues where the last one ended.
  const auto larger = step_samples(20, 5, 2, consumed);
  seen.insert(seen.end(), larger.begin(), larger.end());
  CHECK(seen == from(0, 9 * 12 + 20));
}

TEST_CASE("batch arithmetic that does not work is refused with the arithmetic") {
  const Caught error = caught([] { BatchPlan{10, 3, 0, 2}.check(); });
  CHECK(error.code == ExitCode::usage);
  CHECK(error.has("global-batch 10 is not a multiple of micro-batch 3 x dp 2 = 6"));
  CHECK(caught([] { BatchPlan{4, 8, 0, 1}.check(); }).code == ExitCode::usage);
  CHECK(caught([] { BatchPlan{4, 0, 0, 1}.check(); }).code == ExitCode::usage);
  CHECK(caught([] { Sampler(counting(8), 8, 0); }).code == ExitCode::data);
  CHECK(Sampler(counting(9), 8, 0).start(5) == 0);
}

TEST_CASE("evaluation over all: every token but the first is a target exactly once") {
  for (const std::int64_t count : {2, 8, 9, 10, 64, 65, 66}) {
    const auto windows = EvalWindows::all(counting(count), 8);
    CHECK(windows.targets() == count - 1);
    std::vector<std::int64_t> targets;
    for (std::int64_t first = 0; first < windows.count() + 3; first += 3) {  // three rows a batch, past the end too
      const Batch batch = windows.make_batch(first, 3);
      for (std::int64_t i = 0; i < 3 * 8; ++i) {
        const std::int32_t input = batch["inputs"].data<std::int32_t>()[i],
                           target = batch["targets"].data<std::int32_t>()[i];
        if (target < 0) {
          CHECK(target == -1);
          CHECK(input == 0);
        } else {
          CHECK(target == input + 1);
          targets.push_back(target);
        }
      }
    }
    CHECK(targets == from(1, count - 1));
  }
  CHECK(caught([] { EvalWindows::all(counting(1), 8); }).code == ExitCode::data);
}

TEST_CASE("validation batches are of 12 windows; beyond the text they are the whole text once") {
  using Batches = std::optional<std::int64_t>;
  const auto windows = [](Batches batches) { return EvalWindows::of_batches(counting(1000), 16, batches); };
  const std::int64_t whole = EvalWindows::all(counting(1000), 16).count();
  CHECK(whole == 63);
  CHECK(windows(1).count() == 12);
  CHECK(windows(5).count() == 60);
  CHECK(windows(5).targets() == 960);
  for (const Batches batches : {Batches(), Batches(6), Batches(100'000'000), Batches(std::int64_t{1} << 62)}) {
    CHECK(windows(batches).count() == whole);
    CHECK(windows(batches).targets() == 999);
  }
}

TEST_CASE("evenly spaced windows: fixed, from the first token to the last") {
  const auto windows = EvalWindows::spaced(counting(1000), 16, 7);
  CHECK(windows.count() == 7);
  CHECK(windows.targets() == 7 * 16);
  CHECK(windows.start(0) == 0);
  CHECK(windows.start(6) == 1000 - 17);
  for (std::int64_t w = 1; w < 7; ++w) {
    const std::int64_t gap = windows.start(w) - windows.start(w - 1);
    CHECK(gap >= 163);
    CHECK(gap <= 164);  // 983 / 6 = 163.8
  }
  const Batch batch = windows.make_batch(6, 1);
  CHECK(batch["targets"].data<std::int32_t>()[15] == 999);
  CHECK(EvalWindows::spaced(counting(1000), 16, 1).start(0) == 0);
  CHECK(EvalWindows::spaced(counting(17), 16, 4).start(3) == 0);
  CHECK(caught([] { EvalWindows::spaced(counting(16), 16, 4); }).code == ExitCode::data);
}
