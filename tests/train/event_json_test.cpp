// Events as lines of JSON.
#include "train/events/event_json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/text.h"

using namespace trireme;
using namespace trireme::testing;
using nlohmann::json;

TEST_CASE("every event is a line of JSON that names it, except a step that is not logged") {
  const auto named = [](const Event& event) {
    const std::string line = to_json_line(event);
    CHECK_FALSE(contains(line, "\n"));
    return json::parse(line).at("event").get<std::string>();
  };
  CHECK(named(RunPlanned{}) == "run_planned");
  CHECK(named(RunBegan{}) == "run_began");
  CHECK(named(StepLogged{}) == "step_logged");
  CHECK(named(Validated{}) == "validated");
  CHECK(named(Sampled{}) == "sampled");
  CHECK(named(Saved{}) == "saved");
  CHECK(named(RolledBack{}) == "rolled_back");
  CHECK(named(Said{}) == "said");
  CHECK(named(RunEnded{}) == "run_ended");
  CHECK(to_json_line(StepMade{.step = 3}).empty());
}

TEST_CASE("events keep their values") {
  StepLogged logged;
  logged.record.step = 7;
  logged.record.loss = 1.0 / 3;
  logged.record.skipped = 2;
  logged.evaluated = true;
  const json step = json::parse(to_json_line(logged));
  CHECK(step["step"] == 7);
  CHECK(step["loss"].get<double>() == 1.0 / 3);
  CHECK(step["skipped"] == 2);
  CHECK(step["evaluated"] == true);
  CHECK_FALSE(step.contains("val_loss"));

  const json began = json::parse(to_json_line(RunBegan{.first_step = 2, .steps = 9, .config = R"({"lr":0.5})"}));
  CHECK(began["config"]["lr"] == 0.5);
  CHECK(began["first_step"] == 2);
  CHECK(json::parse(to_json_line(RunPlanned{.rows = {{"device", "cpu"}}}))["rows"]["device"] == "cpu");
  const json plan = json::parse(to_json_line(RunPlanned{
      .rows = {{"parameters", "1,234,567"}, {"steps", "12"}, {"vocabulary", "79, padded"}, {"mesh", "12,34"}}}));
  CHECK(plan["rows"]["parameters"] == 1234567);
  CHECK(plan["rows"]["steps"] == 12);
  CHECK(plan["rows"]["vocabulary"] == "79, padded");
  CHECK(plan["rows"]["mesh"] == "12,34");
  CHECK(to_json_line(Activity{.name = "saving"}).empty());
  CHECK(json::parse(to_json_line(Said{.level = Said::Level::warning, .text = "x"}))["level"] == "warning");
  CHECK_FALSE(json::parse(to_json_line(Saved{})).contains("warning"));
  CHECK(json::parse(to_json_line(Saved{}))["best"] == false);
  CHECK(json::parse(to_json_line(Saved{.best = true}))["best"] == true);

  PhaseSeconds phases{};
  phases[static_cast<std::size_t>(Phase::forward)] = 1.5;
  CHECK(json::parse(to_json_line(RunEnded{.phases = phases}))["phase_seconds"]["forward"] == 1.5);
}

TEST_CASE("a line is ASCII without control characters, whatever a model or a path contains, and NaN is null") {
  const std::string line = to_json_line(Sampled{.text = "\x1b[2J\u009b\u00e9\x7f\xff\n"});
  for (const char byte : line) CHECK((byte >= ' ' && byte <= '~'));
  CHECK(json::parse(line)["text"] == "\x1b[2J\u009b\u00e9\x7f\ufffd\n");
  CHECK(json::parse(to_json_line(Validated{.loss = std::nan("")}))["val_loss"].is_null());
}
