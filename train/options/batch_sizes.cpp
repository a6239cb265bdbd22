#include "train/options/batch_sizes.h"

#include <limits>

#include "core/error.h"

namespace trireme {
namespace {

constexpr std::int64_t default_micro_batch = 12;

/// a * b. Throws if the batch is larger than any machine can hold; this limit is far below integer overflow.
std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (a > most / b)
    fail(ExitCode::usage, "batch",
         "a batch of {} x {} sequences; expected at most {}; lower --micro-batch, --micro-batches or dp in --mesh", a,
         b, most);
  return a * b;
}

/// global / unit. Throws if there is a remainder; `arithmetic` then explains how `unit` was computed.
std::int64_t quotient(std::int64_t global, std::int64_t unit, const std::string& arithmetic, const char* flags) {
  if (global % unit == 0) return global / unit;
  const std::int64_t below = global / unit * unit;
  fail(ExitCode::usage, "batch",
       "--global-batch {} is not a multiple of {}; expected --global-batch {}{}; change it{} or dp in --mesh", global,
       arithmetic, below > 0 ? fmt::format("{} or ", below) : "", below + unit, flags);
}

}  // namespace

BatchSizes infer_batch(const BatchOptions& options, std::int64_t dp) {
  BatchSizes sizes;
  sizes.dp = dp;
  const auto& [micro, global, count] = options;
  if (micro && global && count) {
    const std::int64_t batch = product(product(*micro, dp), *count);
    if (batch != *global)
      fail(ExitCode::usage, "batch",
           "--micro-batch {} x dp {} x --micro-batches {} = {}, but --global-batch is {}; expected equal numbers; "
           "change one, or set one to auto",
           *micro, dp, *count, batch, *global);
  }
  if (global && micro) {
    sizes.micro_batch = *micro;
    sizes.micro_batches =
        quotient(*global, product(*micro, dp), fmt::format("--micro-batch {} x dp {} = {}", *micro, dp, *micro * dp),
                 ", --micro-batch");
  } else if (global) {
    sizes.micro_batches = count.value_or(1);
    sizes.micro_batch =
        count ? quotient(*global, product(*count, dp),
                         fmt::format("--micro-batches {} x dp {} = {}", *count, dp, *count * dp), ", --micro-batches")
              : quotient(*global, dp, fmt::format("dp {}", dp), "");
  } else {
    sizes.micro_batch = micro.value_or(default_micro_batch);
    sizes.micro_batches = count.value_or(1);
  }
  sizes.global_batch = product(product(sizes.micro_batch, dp), sizes.micro_batches);
  // A pipeline's schedule lists the actions of all of them.
  constexpr std::int64_t most_micro_batches = std::int64_t{1} << 20;
  if (sizes.micro_batches > most_micro_batches)
    fail(
        ExitCode::usage, "batch",
        "{} micro-batches in a step on one dp rank; expected at most {}; raise --micro-batch or dp in --mesh, or lower "
        "--global-batch or --micro-batches",
        sizes.micro_batches, most_micro_batches);
  return sizes;
}

std::string to_string(const BatchSizes& sizes) {
  return fmt::format("micro-batch {} x dp {} x accumulation {} = global batch {}", sizes.micro_batch, sizes.dp,
                     sizes.micro_batches, sizes.global_batch);
}

}  // namespace trireme
