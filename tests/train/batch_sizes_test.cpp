// Batch arithmetic: what is inferred, and how an impossible batch is refused.
#include "train/options/batch_sizes.h"
#include "tests/support/errors.h"

#include <doctest/doctest.h>

using namespace trireme;
using namespace trireme::testing;

namespace batch_sizes_test {
namespace {

struct Case {
  BatchOptions given;
  std::int64_t dp, micro_batch, micro_batches, global_batch;
};

std::string refusal(const BatchOptions& given, std::int64_t dp) {
  return failure([&] { (void)infer_batch(given, dp); });
}

}  // namespace

TEST_CASE("more micro-batches than a schedule can list") {
  CHECK(infer_batch({.micro_batches = 1 << 20}, 1).micro_batches == 1 << 20);
  CHECK(failure([] {
          infer_batch({.micro_batches = (1 << 20) + 1}, 1);
        }).find("64 trireme: [batch] 1048577 micro-batches in a step") == 0);
}

TEST_CASE("two of micro-batch, micro-batches and global-batch give the third") {
  const Case cases[] = {
      {{}, 1, 12, 1, 12},
      {{}, 2, 12, 1, 24},
      {{.micro_batch = 4}, 3, 4, 1, 12},
      {{.micro_batch = 4, .global_batch = 24}, 2, 4, 3, 24},
      {{.micro_batch = 4, .micro_batches = 5}, 2, 4, 5, 40},
      {{.global_batch = 24, .micro_batches = 3}, 2, 4, 3, 24},
      {{.global_batch = 24}, 2, 12, 1, 24},
      {{.global_batch = 10}, 2, 5, 1, 10},
      {{.micro_batches = 2}, 2, 12, 2, 48},
      {{.micro_batch = 3, .global_batch = 6, .micro_batches = 1}, 2, 3, 1, 6},
  };
  for (const Case& c : cases) {
    const BatchSizes sizes = infer_batch(c.given, c.dp);
    CHECK(sizes.micro_batch == c.micro_batch);
    CHECK(sizes.micro_batches == c.micro_batches);
    CHECK(sizes.global_batch == c.global_batch);
    CHECK(sizes.dp == c.dp);
    sizes.on_rank(0).check();
    CHECK(sizes.on_rank(0).micro_batches() == c.micro_batches);
  }
}

TEST_CASE("an impossible batch is refused with the arithmetic") {
  CHECK(refusal({.micro_batch = 4, .global_batch = 25}, 3) ==
        "64 trireme: [batch] --global-batch 25 is not a multiple of --micro-batch 4 x dp 3 = 12; expected "
        "--global-batch 24 or 36; change it, "
        "--micro-batch or dp in --mesh");
  CHECK(contains(refusal({.micro_batch = 4, .global_batch = 7}, 2),
                 "is not a multiple of --micro-batch 4 x dp 2 = 8; expected --global-batch 8;"));
  CHECK(contains(refusal({.global_batch = 25, .micro_batches = 4}, 2),
                 "not a multiple of --micro-batches 4 x dp 2 = 8; expected --global-batch 24 or 32"));
  CHECK(contains(
      refusal({.global_batch = 5}, 2),
      "--global-batch 5 is not a multiple of dp 2; expected --global-batch 4 or 6; change it or dp in --mesh"));
  CHECK(contains(refusal({.micro_batch = 3, .global_batch = 8, .micro_batches = 2}, 2),
                 "--micro-batch 3 x dp 2 x --micro-batches 2 = 12, but --global-batch is 8"));
  CHECK(
      contains(refusal({.micro_batch = 1 << 30, .micro_batches = 1 << 30}, 1 << 30), "64 trireme: [batch] a batch of"));
}

TEST_CASE("the arithmetic in words") {
  CHECK(to_string(infer_batch({.micro_batch = 12, .micro_batches = 4}, 2)) ==
        "micro-batch 12 x dp 2 x accumulation 4 = global batch 96");
}

}  // namespace batch_sizes_test
