#include "parallel/pipeline/stage_plan.h"

#include <charconv>
#include <cstddef>
#include <string>

#include "core/error.h"

namespace trireme::pipeline {

namespace {

StagePlan with_counts(const std::vector<int>& counts) {
  StagePlan plan;
  for (const int count : counts) plan.push_back({plan.empty() ? 0 : plan.back().end(), count});
  return plan;
}

std::vector<int> parse_counts(std::string_view list) {
  std::vector<int> counts;
  for (const char *at = list.data(), *const end = at + list.size();;) {
    int count = 0;
    const auto [after, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 1 || (after != end && *after != ',')) {
      fail(ExitCode::usage, "pipeline",
           "--stage-layers '{}' is not a list of layer counts; expected a whole number from 1 for every stage, as in "
           "3,3,2; change --stage-layers",
           list);
    }
    counts.push_back(count);
    if (after == end) return counts;
    at = after + 1;
  }
}

}  // namespace

StagePlan stage_plan(int layers, int stages, const StageCosts& costs) {
  if (stages < 1) fail(ExitCode::usage, "pipeline", "expected at least 1 stage, got {}; change --mesh pp", stages);
  if (layers < stages) {
    fail(ExitCode::usage, "pipeline",
         "{} layers cannot fill {} pipeline stages; expected at least one layer per stage; raise --layers, lower pp in "
         "--mesh or V in --pipeline interleaved:V",
         layers, stages);
  }
  std::vector<int> counts(static_cast<std::size_t>(stages), 1);
  const auto cost_with_one_more = [&](int stage) {
    const double before = stage == 0 ? costs.embedding : 0, after = stage == stages - 1 ? costs.head : 0;
    return before + costs.block * (counts[static_cast<std::size_t>(stage)] + 1) + after;
  };
  // Blocks cost the same, so giving each to the stage that is cheapest with it keeps the most expensive stage minimal.
  for (int left = layers - stages; left > 0; --left) {
    int chosen = stages > 2 ? 1 : 0;
    for (int i = 1; i <= stages; ++i) {
      const int stage = i <= stages - 2 ? i : i == stages - 1 ? 0 : stages - 1;  // middle, first, last
      if (cost_with_one_more(stage) < cost_with_one_more(chosen)) chosen = stage;
    }
    ++counts[static_cast<std::size_t>(chosen)];
  }
  return with_counts(counts);
}

StagePlan listed_stage_plan(std::string_view list, int layers, int stages) {
  const std::vector<int> counts = parse_counts(list);
  if (static_cast<int>(counts.size()) != stages) {
    fail(
        ExitCode::usage, "pipeline",
        "--stage-layers {} names {} stages; the pipeline has {} (pp in --mesh, times V with --pipeline interleaved:V); "
        "change --stage-layers, --mesh or --pipeline",
        list, counts.size(), stages);
  }
  long sum = 0;
  std::string terms;
  for (const int count : counts) {
    sum += count;
    terms += fmt::format("{}{}", terms.empty() ? "" : " + ", count);
  }
  if (sum != layers) {
    fail(ExitCode::usage, "pipeline",
         "--stage-layers {} places {} = {} layers; the model has {}; change --stage-layers or --layers", list, terms,
         sum, layers);
  }
  return with_counts(counts);
}

}  // namespace trireme::pipeline
