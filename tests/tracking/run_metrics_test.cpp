// The page for Prometheus.
#include "ops/tracking/run_metrics.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <sstream>

#include "ops/tracking/prometheus_sink.h"
#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;

namespace run_metrics_test {

/// The value of a metric, as written; empty if it is absent.
std::string value(const std::string& page, const std::string& name) {
  std::istringstream lines(page);
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + " ") || line.starts_with(name + "{")) {
      CHECK(found.empty());  // once
      found = line.substr(line.rfind(' ') + 1);
    }
  return found;
}

RunBegan began() {
  return {.first_step = 20,
          .steps = 100,
          .rate_unit = "tok/s",
          .out = "runs/a \"b\"\\",
          .config = R"({"mesh": "dp=2,tp=2,pp=1,cp=1,ep=2", "zero": 1, "dtype": "bf16", "model": null})"};
}

}  // namespace run_metrics_test

using namespace run_metrics_test;

TEST_CASE("a page from the events of a run") {
  RunMetrics metrics;
  CHECK(value(metrics.page(), "trireme_step").empty());
  metrics.apply(began(), 1000);
  CHECK(value(metrics.page(), "trireme_step") == "20");
  CHECK(value(metrics.page(), "trireme_world_size") == "4");  // ep adds no ranks
  CHECK(value(metrics.page(), "trireme_steps_wanted") == "100");
  CHECK(value(metrics.page(), "trireme_last_step_timestamp_seconds").empty());
  CHECK(contains(metrics.page(),
                 "trireme_info{out=\"runs/a \\\"b\\\"\\\\\",mesh=\"dp=2,tp=2,pp=1,cp=1,ep=2\",zero=\"1\","
                 "dtype=\"bf16\"} 1\n"));

  metrics.apply(StepMade{.step = 21, .seconds = 0.5}, 1001.5);
  metrics.apply(StepMade{.step = 22, .seconds = 0.25}, 1002);
  StepLogged logged;
  logged.record.step = 22;
  logged.record.loss = 2.5;
  logged.record.lr = 1e-3;
  logged.record.grad_norm = std::nan("");
  logged.record.tokens = 12345678901;
  logged.record.tokens_per_s = 1e6;
  logged.record.comm_exposed_ms = 1.5;
  logged.record.skipped = 3;
  metrics.apply(logged, 1002);
  metrics.apply(Validated{.step = 22, .loss = INFINITY, .meaning = ""}, 1003);
  metrics.apply(Saved{.step = 22, .path = "", .bytes = 1, .seconds = 1, .warning = ""}, 1004);
  metrics.apply(Said{.level = Said::Level::warning, .text = "w"}, 1004);
  metrics.apply(Said{.text = "i"}, 1004);
  const std::string page = metrics.page();
  CHECK(value(page, "trireme_step") == "22");
  CHECK(value(page, "trireme_last_step_timestamp_seconds") == "1002");
  CHECK(value(page, "trireme_step_seconds_sum") == "0.75");
  CHECK(value(page, "trireme_step_seconds_count") == "2");
  CHECK(value(page, "trireme_loss") == "2.5");
  CHECK(value(page, "trireme_learning_rate") == "0.001");
  CHECK(value(page, "trireme_gradient_norm") == "NaN");
  CHECK(value(page, "trireme_tokens") == "12345678901");
  CHECK(std::stod(value(page, "trireme_tokens_per_second")) == 1e6);
  CHECK(value(page, "trireme_exposed_communication_seconds") == "0.0015");
  CHECK(value(page, "trireme_skipped_steps") == "3");
  CHECK(value(page, "trireme_loss_scale").empty());
  CHECK(value(page, "trireme_validation_loss") == "+Inf");
  CHECK(value(page, "trireme_checkpoint_step") == "22");
  CHECK(value(page, "trireme_warnings_total") == "1");
  CHECK(value(page, "trireme_ended") == "0");

  metrics.apply(RolledBack{20}, 1005);
  metrics.apply(RunEnded{}, 1006);
  CHECK(value(metrics.page(), "trireme_step") == "20");
  CHECK(value(metrics.page(), "trireme_rollbacks_total") == "1");
  CHECK(value(metrics.page(), "trireme_ended") == "1");
}

TEST_CASE("every metric has its help and type before it, and its name once") {
  RunMetrics metrics;
  metrics.apply(began(), 1);
  metrics.apply(StepMade{.step = 1, .seconds = 1}, 1);
  metrics.apply(StepLogged{}, 1);
  std::istringstream lines(metrics.page());
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    words >> hash >> kind >> name;
    if (hash != "#") {
      CHECK_MESSAGE((line.starts_with(family) && !family.empty()), line);
      continue;
    }
    if (kind == "HELP") CHECK(occurrences(metrics.page(), "# HELP " + name + " ") == 1);
    family = name;
  }
}

TEST_CASE("how long each rank works") {
  watch::RankPages pages(3);
  const auto show = [&pages](int rank, std::int64_t step, float backward, float waited) {
    watch::StepTimes times{.step = step, .seconds = {}};
    times.seconds[static_cast<std::size_t>(Phase::backward)] = backward;
    times.seconds[static_cast<std::size_t>(Phase::communication)] = waited;
    pages.page(rank).times[static_cast<std::size_t>(step) % watch::RankPage::steps].write(times);
  };
  show(0, 1, 0.25F, 9);
  show(0, 2, 0.75F, 9);
  show(2, 1, 2, 9);
  pages.page(2).work = 7;
  const std::string page = RunMetrics().page(&pages);
  CHECK(contains(page, "trireme_rank_working_seconds{rank=\"0\",work=\"0\"} 0.5\n"));
  CHECK(contains(page, "trireme_rank_working_seconds{rank=\"2\",work=\"7\"} 2\n"));
  CHECK_FALSE(contains(page, "rank=\"1\""));
}

TEST_CASE("a configuration that is no JSON leaves out its labels") {
  RunMetrics metrics;
  RunBegan run = began();
  run.config = "{";
  metrics.apply(run, 1);
  CHECK(value(metrics.page(), "trireme_info") == "1");
  CHECK(value(metrics.page(), "trireme_world_size").empty());
}
