// What a person sees: on a terminal, with --quiet and --json, and as curves.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support.h"
#include "tests/support/virtual_terminal.h"

using namespace trireme::testing;
using nlohmann::json;

namespace {

std::vector<std::string> screen_of(const Result& result, int columns) {
  VirtualTerminal terminal(columns);
  terminal.write(result.output);
  return terminal.lines();
}

int lines_with(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<int>(
      std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return contains(line, part); }));
}

}  // namespace

TEST_CASE("on a terminal every line stays, warnings too, and the live line is gone at the end") {
  const Workplace work;
  for (const int columns : {80, 120}) {
    const Result result =
        run_on_terminal(columns, "TRIREME_FAULT=nan@step=3,times=1", "train_gpt",
                        work.small_run() + "--steps 12 --allow-fault-injection --checkpoint-every 2 --out " +
                            work.path(fmt::format("run{}", columns)));
    INFO(result.output);
    CHECK(result.code == 0);
    CHECK(contains(result.output, "\x1b[J"));  // there was a live line
    CHECK(contains(result.output, "% | step "));
    const std::vector<std::string> lines = screen_of(result, columns);
    for (int step = 1; step <= 12; ++step) CHECK(lines_with(lines, fmt::format("step {:>2}/12 | loss ", step)) == 1);
    CHECK(lines_with(lines, "warning: injected fault: nan at ") == 1);
    CHECK(lines_with(lines, "step 3 skipped: ") == 1);
    CHECK(lines_with(lines, "saved step 4 (") + lines_with(lines, "saved step 4, the best so far (") == 1);
    CHECK(lines_with(lines, "done: 12 steps in ") == 1);
    CHECK(lines_with(lines, "where the time went") == 1);
    CHECK(lines_with(lines, "% | step ") == 0);
    CHECK(lines_with(lines, "o validation loss") == 1);  // the chart
    CHECK(lines_with(lines, "<?>") == 0);                // nothing but known commands
    const auto label =
        std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.starts_with("memory per rank"); });
    REQUIRE(label != lines.end());
    for (auto line = lines.begin(); line <= label; ++line) CHECK(static_cast<int>(line->size()) <= columns);
  }
}

TEST_CASE("an error on a terminal stands on a line of its own") {
  const Workplace work;
  const Result result = run_on_terminal(80, "TRIREME_FAULT=nan@step=3,times=9", "train_gpt",
                                        work.small_run() + "--allow-fault-injection");
  CHECK(result.code == 77);
  const std::vector<std::string> lines = screen_of(result, 80);
  CHECK(lines_with(lines, "trireme: FATAL[77]") == 1);
  CHECK(std::any_of(lines.begin(), lines.end(), [](const auto& l) { return l.starts_with("trireme: FATAL[77]"); }));
  CHECK(lines_with(lines, "% | step ") == 0);
}

TEST_CASE("NO_COLOR and TERM=dumb are respected") {
  const Workplace work;
  CHECK(contains(run_on_terminal(80, "", "train_gpt", work.small_run()).output, "\x1b[1m"));
  CHECK_FALSE(contains(run_on_terminal(80, "NO_COLOR=1", "train_gpt", work.small_run()).output, "\x1b[1m"));
  const Result dumb = run_on_terminal(60, "TERM=dumb", "train_gpt", work.small_run());
  CHECK_FALSE(contains(dumb.output, "\x1b"));
  for (const std::string& line : screen_of(dumb, 60)) CHECK(line.size() <= 60);
}

TEST_CASE("--help fits the window, and 80 columns in a pipe") {
  for (const std::string program : {"train_gpt", "generate", "plot", "checkpoint"}) {
    for (const int columns : {50, 80, 90}) {
      for (const std::string& line : screen_of(run_on_terminal(columns, "", program, "--help"), columns))
        CHECK_MESSAGE(static_cast<int>(line.size()) <= columns, program, ": ", line);
    }
    std::istringstream lines(run(program, "--help").output);
    for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, program, ": ", line);
  }
}

TEST_CASE("--quiet prints the result, and --json events and nothing else") {
  const Workplace work;
  const Result quiet = run("train_gpt", work.small_run() + "--quiet --out " + work.path("quiet"));
  CHECK(quiet.code == 0);
  CHECK(occurrences(quiet.output, "\n") == 1);
  CHECK(quiet.output.starts_with("made 6 steps in "));
  CHECK(contains(quiet.output, " | validation loss "));

  const Result events = run("train_gpt", work.small_run() + "--json --checkpoint-every 3 --out " + work.path("json"));
  CHECK(events.code == 0);
  std::vector<std::string> names;
  std::vector<double> losses;
  std::istringstream lines(events.output);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    names.push_back(event["event"]);
    if (names.back() == "step_logged") losses.push_back(event["loss"]);
    if (names.back() == "run_began") CHECK(event["config"]["micro-batch"] == 2);
  }
  REQUIRE(names.size() > 6);
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 4) ==
        std::vector<std::string>{"run_planned", "run_began", "validated", "step_logged"});
  CHECK(names.back() == "run_ended");
  CHECK(std::count(names.begin(), names.end(), "saved") == 2);
  CHECK(losses == metric(work.path("json/metrics.jsonl"), "loss"));
  CHECK(results(work.path("json/metrics.jsonl")) == results(work.path("quiet/metrics.jsonl")));
}

TEST_CASE("no name in an error can drive the terminal") {
  const Result result = run("train_gpt", "--data $'no\\x1b[2Jsuch\\x9b' --steps 1");
  CHECK(result.code == 64);
  CHECK(contains(result.output, "no\\x1b[2Jsuch\\x9b"));
  CHECK_FALSE(contains(result.output, "\x1b"));
}

TEST_CASE("plot draws one run, several, and an SVG; it refuses what is no run") {
  const Workplace work;
  const std::string one = work.path("one"), two = work.path("two"), svg = work.path("loss.svg");
  CHECK(run("train_gpt", work.small_run() + "--quiet --out " + one).code == 0);
  CHECK(run("train_gpt", work.small_run() + "--quiet --lr 1e-2 --out " + two).code == 0);
  const Result single = run_with("LC_ALL=C.UTF-8", "plot", one);
  CHECK(single.code == 0);
  CHECK(contains(single.output, "o validation loss"));
  CHECK(contains(single.output, "\u2502"));
  const Result ascii = run_with("LC_ALL=C", "plot", one + " " + two);
  CHECK(contains(ascii.output, "a loss  A validation loss  " + one));
  CHECK(contains(ascii.output, "b loss  B validation loss  " + two));
  for (const char byte : ascii.output) CHECK((byte == '\n' || (byte >= ' ' && byte <= '~')));

  CHECK(run("plot", one + " " + two + " --svg " + svg).code == 0);
  const std::string drawn = shell("cat " + svg).output;
  CHECK(drawn.starts_with("<svg "));
  CHECK(drawn.ends_with("</svg>\n"));
  CHECK(contains(drawn, "prefers-color-scheme: dark"));
  CHECK(occurrences(drawn, "class=\"blue-line\"") == 2);  // the curve and its legend
  CHECK(occurrences(drawn, "class=\"orange-line\"") == 2);

  CHECK(run("plot", "--help").code == 0);
  CHECK(run("plot", "").code == 64);
  check_refused(run("plot", work.path("absent")), 64, {"[plot]", "metrics.jsonl"});
  check_refused(run("plot", one + " --log"), 64, {"'--log'"});
  check_refused(run("plot", "--svg x.svg"), 64, {"no runs are named"});
}
