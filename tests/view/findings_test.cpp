// What a page says in words.
#include "ops/view/findings.h"

#include <doctest/doctest.h>

#include "tests/support/text.h"
#include "tests/view/traces.h"

using namespace trireme;
using namespace trireme::run_view;
using trireme::testing::contains;

namespace {

Profile slow_profile() { return profile_of(parse_trace(trace_text(slow_rank()), "trace.json"), "trace.json"); }

}  // namespace

TEST_CASE("view: a slow rank is named, with what it does longer, and how long others wait for it") {
  const std::vector<Finding> findings = step_findings(slow_profile());
  REQUIRE(findings.size() == 4);
  CHECK(findings[0].warning);
  CHECK(findings[0].rank == 1);
  CHECK(contains(findings[0].title, "Rank 1 (dp=1,tp=0,pp=0) on h2 is slow: 1.73x"));  // 95 ms against 55 ms
  CHECK(contains(findings[0].text, "backward: 60.0 ms against 20.0 ms"));
  CHECK(contains(findings[0].text, "wait 40.0 ms for it"));
  CHECK(contains(findings[1].title, "A step takes 100.0 ms"));
  CHECK(contains(findings[1].text, "rank 1 90 %"));
  CHECK(contains(findings[2].title, "25 % of the ranks' time is exposed communication"));  // 45 and 5 of 200 ms
  CHECK(contains(findings[3].title, "Most memory: 2.1 KiB, on rank 1"));
  CHECK(contains(findings[3].text, "in the backward of micro-batch 0"));
}

TEST_CASE("view: ranks that work alike") {
  std::vector<RankTrace> ranks = {slow_rank()[1], slow_rank()[1]};
  ranks[0].rank = 0;
  const Profile profile = profile_of(parse_trace(trace_text(ranks), "trace.json"), "trace.json");
  const std::vector<Finding> findings = step_findings(profile);
  CHECK_FALSE(findings[0].warning);
  CHECK(findings[0].title == "No rank stands out");
}

TEST_CASE("view: the schedule with the times of a step") {
  Profile profile;
  profile.mesh = parse_mesh("pp=2", 0);
  profile.micro_batches = 2;
  Step step{.name = "step 1", .seconds = 1, .ranks = std::vector<RankStep>(2), .messages = {}};
  for (RankStep& rank : step.ranks) {
    rank.end = 1;
    for (int m = 0; m < 2; ++m) {
      Part part;
      part.kind = "forward";
      part.begin = 0.1 * m;
      part.end = part.begin + 0.01;
      rank.parts.push_back(part);
      part.kind = "backward";
      part.begin += 0.05;
      part.end = part.begin + 0.03;
      rank.parts.push_back(part);
    }
  }
  const Planned planned = plan_of(profile, step);
  REQUIRE(planned.ranks.size() == 2);
  CHECK(planned.ranks[0].size() == 4);
  CHECK(planned.seconds == doctest::Approx(3 * (0.01 + 0.03)).epsilon(0.01));  // (M + P - 1) (forward + backward)
  CHECK(planned.bubble == doctest::Approx(1.0 / 3).epsilon(0.01));
  CHECK(planned.plain_bubble == doctest::Approx(1.0 / 3));
  profile.pipeline = "unknown";
  CHECK(plan_of(profile, step).ranks.empty());
}

TEST_CASE("view: what the losses did") {
  const auto record = [](std::int64_t step, double loss, double norm) {
    return MetricsRecord{.step = step, .has_loss = true, .values = {{"loss", loss}, {"grad_norm", norm}}};
  };
  std::vector<MetricsRecord> metrics = {record(1, 4, 1), record(2, 3, 1.1), record(3, 2.5, 40)};
  metrics[1].values["val_loss"] = 3.25;
  metrics.push_back({.step = 4, .has_loss = true, .values = {}});
  const std::vector<Finding> findings = metrics_findings(metrics);
  REQUIRE(findings.size() == 3);
  CHECK(findings[0].title == "The loss went from 4.0000 to 2.5000");
  CHECK(contains(findings[0].text, "3.2500, at step 2"));
  CHECK(findings[1].title == "1 logged step has no finite loss");
  CHECK(findings[2].title == "The gradient norm jumped to 40 at step 3");
  CHECK(metrics_findings({}).empty());
}
