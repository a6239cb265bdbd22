#include "parallel/pipeline/stage_plan.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
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

/// All blocks cost the same. So giving each block to the stage that is then cheapest minimises the most expensive
/// stage.
StagePlan plan_of_equal_blocks(int layers, int stages, const StageCosts& costs) {
  std::vector<int> counts(static_cast<std::size_t>(stages), 1);
  const auto cost_with_one_more = [&](int stage) {
    const double before = stage == 0 ? costs.embedding : 0, after = stage == stages - 1 ? costs.head : 0;
    return before + costs.block * (counts[static_cast<std::size_t>(stage)] + 1) + after;
  };
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

/// Finds the split of the blocks into stages with the least value, by dynamic programming: the best first s + 1 stages
/// that end before block `end` are the best s stages that end before some `begin`, plus one stage from there.
class Splits {
 public:
  Splits(int stages, const StageCosts& costs)
      : stages_(static_cast<std::size_t>(stages)), layers_(costs.blocks.size()), costs_(costs), before_(layers_ + 1) {
    for (std::size_t i = 0; i < layers_; ++i) before_[i + 1] = before_[i] + costs.blocks[i];
  }

  /// `join`: combines the value of some stages with the cost of one more stage.
  template <class Join>
  double best(const Join& join, std::vector<int>& counts) const {
    constexpr double never = std::numeric_limits<double>::infinity();
    std::vector<std::vector<double>> value(stages_ + 1, std::vector<double>(layers_ + 1, never));
    std::vector<std::vector<std::size_t>> from(stages_ + 1, std::vector<std::size_t>(layers_ + 1));
    value[0][0] = 0;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      for (std::size_t end = stage + 1; end <= layers_; ++end) {
        for (std::size_t begin = stage; begin < end; ++begin) {
          const double with = join(value[stage][begin], cost(stage, begin, end));
          if (with >= value[stage + 1][end]) continue;
          value[stage + 1][end] = with;
          from[stage + 1][end] = begin;
        }
      }
    }
    counts.assign(stages_, 0);
    for (std::size_t stage = stages_, end = layers_; stage > 0; --stage) {
      const std::size_t begin = from[stage][end];
      counts[stage - 1] = static_cast<int>(end - begin);
      end = begin;
    }
    return value[stages_][layers_];
  }

 private:
  double cost(std::size_t stage, std::size_t begin, std::size_t end) const {
    return (stage == 0 ? costs_.embedding : 0) + before_[end] - before_[begin] +
           (stage + 1 == stages_ ? costs_.head : 0);
  }

  std::size_t stages_, layers_;
  const StageCosts& costs_;
  std::vector<double> before_;  // cost of the blocks before each
};

/// First minimises the cost of the most expensive stage; then, within this limit, makes the stages as equal as
/// possible.
StagePlan plan_of_unequal_blocks(int stages, const StageCosts& costs) {
  const Splits splits(stages, costs);
  std::vector<int> counts;
  const double rounding = 1 + 1e-9;  // sums may be taken in another order
  const double most =
      splits.best([](double others, double stage) { return std::max(others, stage); }, counts) * rounding;
  splits.best(
      [most](double others, double stage) {
        return stage <= most ? others + stage * stage : std::numeric_limits<double>::infinity();
      },
      counts);
  return with_counts(counts);
}

bool all_equal(const std::vector<double>& blocks) {
  return std::all_of(blocks.begin(), blocks.end(), [&](double cost) { return cost == blocks.front(); });
}

}  // namespace

StagePlan stage_plan(int layers, int stages, const StageCosts& costs) {
  if (stages < 1)
    fail(ExitCode::usage, "pipeline", "expected at least 1 stage, got {}; change pp of the mesh (--mesh)", stages);
  if (layers < stages) {
    fail(ExitCode::usage, "pipeline",
         "{} layers cannot fill {} pipeline stages; expected at least one layer per stage; give the model more "
         "layers (--layers), or lower pp of the mesh (--mesh) or V of the schedule interleaved:V (--pipeline)",
         layers, stages);
  }
  if (costs.blocks.empty()) return plan_of_equal_blocks(layers, stages, costs);
  require(costs.blocks.size() == static_cast<std::size_t>(layers), "pipeline", "costs of {} blocks for {} layers",
          costs.blocks.size(), layers);
  if (!all_equal(costs.blocks)) return plan_of_unequal_blocks(stages, costs);
  return plan_of_equal_blocks(layers, stages,
                              {.embedding = costs.embedding, .block = costs.blocks.front(), .head = costs.head});
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
