// The search for the fastest settings finds what a prediction of every setting finds.
#include "ops/plan/search.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/plan/report.h"
#include "tests/plan/by_flops.h"

using namespace trireme;
using namespace trireme::plan;

TEST_CASE("the meshes of a number of ranks") {
  CHECK(meshes(1, 0).size() == 1);
  CHECK(meshes(8, 0).size() == 20);  // 2^3 as an ordered product of four
  const std::vector<MeshShape> with_experts = meshes(4, 2);
  CHECK(with_experts.size() > meshes(4, 0).size());
  for (const MeshShape& mesh : with_experts) {
    CHECK(mesh.ranks() == 4);
    CHECK(mesh.size(Axis::data) % mesh.size(Axis::ep) == 0);
  }
}

namespace {

bool is_refused(const TrainOptions& wanted) { return wanted.mesh.axes.find("tp=4") != std::string::npos; }

TrainOptions ready(const TrainOptions& wanted) {
  if (is_refused(wanted)) fail(ExitCode::usage, "test", "no tp=4");
  TrainOptions options = wanted;
  resolve(options, 0);
  return options;
}

Search search_of(const GptOptions& given, const Space& space, double memory, std::size_t shown, bool front = false) {
  const DryProgram program = program_of(given);
  return search(combinations(given, space), ready, program, model_facts(given, program), ByFlops(),
                {.memory = memory, .shown = shown, .threads = 2, .front = front});
}

}  // namespace

TEST_CASE("a search finds the fastest that fit, and predicts few") {
  const GptOptions given = options_of({"--layers", "4", "--micro-batch", "1", "--global-batch", "16"});
  const Space space{.meshes = meshes(4, 0),
                    .micro_batches = {1, 2, 4},
                    .zero = {0, 1, 2, 3},
                    .recompute = {"none", "full"},
                    .pipelines = {"1f1b", "gpipe"}};
  const double half = static_cast<double>(predict(given, program_of(given), ByFlops()).most_memory().peak) / 2;
  const Search all = search_of(given, space, half, 10'000), some = search_of(given, space, half, 3);
  REQUIRE(all.choices.size() > 3);
  CHECK(all.impossible.front().second == "no tp=4");
  CHECK(!all.smallest);
  CHECK(some.predicted < all.predicted);
  CHECK(all.predicted <= all.possible);
  for (std::size_t i = 1; i < all.choices.size(); ++i)
    CHECK(all.choices[i - 1].prediction.seconds <= all.choices[i].prediction.seconds);
  for (const auto& choice : all.choices) CHECK(static_cast<double>(choice.prediction.most_memory().peak) <= half);
  const DryProgram program = program_of(given);
  std::map<double, std::string> by_time;
  for (const Alternatives& alternatives : combinations(given, space))
    for (const auto& [wanted, recomputes] : alternatives) {
      if (is_refused(wanted)) continue;
      const TrainOptions options = ready(wanted);
      const Prediction prediction = predict(options, program, ByFlops());
      if (static_cast<double>(prediction.most_memory().peak) > half) continue;
      by_time.emplace(prediction.seconds, settings_text(options));
    }
  REQUIRE(some.choices.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(some.choices[i].prediction.seconds == all.choices[i].prediction.seconds);
    CHECK(by_time.contains(some.choices[i].prediction.seconds));
  }
  CHECK(some.choices.front().prediction.seconds == by_time.begin()->first);
}

TEST_CASE("a search varies only what can differ") {
  const GptOptions given = options_of({});
  const Space space{.meshes = meshes(2, 0),
                    .micro_batches = {1},
                    .zero = {0, 1, 2},
                    .recompute = {"none"},
                    .pipelines = {"1f1b", "gpipe"}};
  std::size_t count = 0;
  for (const Alternatives& alternatives : combinations(given, space)) count += alternatives.size();
  CHECK(count == 9);  // dp=2: three ZeRO stages; cp=2: three; tp=2: one; pp=2: two schedules
}

TEST_CASE("a search that finds nothing says what needs least") {
  const GptOptions given = options_of({"--layers", "4", "--micro-batch", "1", "--global-batch", "16"});
  const Space space{.meshes = meshes(2, 0),
                    .micro_batches = {1, 2},
                    .zero = {0},
                    .recompute = {"none", "full"},
                    .pipelines = {"1f1b"}};
  const Search found = search_of(given, space, 1000, 3);
  CHECK(found.choices.empty());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const DryProgram program = program_of(given);
  for (const Alternatives& alternatives : combinations(given, space))
    for (const auto& [wanted, recomputes] : alternatives)
      least = std::min(least, predict(ready(wanted), program, ByFlops()).most_memory().peak);
  REQUIRE(found.smallest);
  CHECK(found.smallest->second == least);
}

TEST_CASE("a search finds what is fastest with less and less memory") {
  const GptOptions given = options_of({"--layers", "4", "--micro-batch", "1", "--global-batch", "16"});
  const Space space{.meshes = meshes(2, 0),
                    .micro_batches = {1, 4},
                    .zero = {0, 3},
                    .recompute = {"none", "full"},
                    .pipelines = {"1f1b", "gpipe"}};
  const Search found = search_of(given, space, 1e12, 2, true), choices = search_of(given, space, 1e12, 2);
  const DryProgram program = program_of(given);
  std::vector<std::pair<double, double>> all;  // seconds, memory
  for (const Alternatives& alternatives : combinations(given, space))
    for (const auto& [wanted, recomputes] : alternatives) {
      if (is_refused(wanted)) continue;
      const Prediction prediction = predict(ready(wanted), program, ByFlops());
      all.emplace_back(prediction.seconds, static_cast<double>(prediction.most_memory().peak));
    }
  std::sort(all.begin(), all.end());
  const auto fastest = [&](double most) {
    return std::ranges::find_if(all, [&](const auto& one) { return one.second <= most; });
  };
  double most = 1e12;
  for (const Tried& tried : found.front) {
    REQUIRE(fastest(most) != all.end());
    CHECK(static_cast<double>(tried.memory) <= most);
    CHECK(tried.seconds == fastest(most)->first);
    most = 0.7 * static_cast<double>(tried.memory);
  }
  CHECK(fastest(most) == all.end());
  CHECK(found.front.size() > 2);
  CHECK(static_cast<std::int64_t>(found.front.size() + found.others.size()) == found.predicted);
  // The choices are those of a search without a front.
  REQUIRE(found.choices.size() == choices.choices.size());
  for (std::size_t c = 0; c < choices.choices.size(); ++c)
    CHECK(settings_text(found.choices[c].options) == settings_text(choices.choices[c].options));
}
