// Recordings of simulated steps, and the page that shows them.
#include "ops/plan/page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "tests/plan/by_flops.h"

using namespace trireme;
using namespace trireme::plan;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

GptOptions two_stages() { return options_of({"--layers", "4", "--mesh", "pp=2", "--micro-batches", "3"}); }

}  // namespace

TEST_CASE("a recording has the forwards and backwards of a step, with when they were and the memory") {
  const GptOptions options = two_stages();
  const DryProgram program = program_of(options);
  const Recording recording = record(options, program, ByFlops());
  const Prediction prediction = predict(options, program, ByFlops());
  CHECK(recording.micro_batches == 3);
  CHECK(recording.timeline.seconds == doctest::Approx(prediction.seconds));
  REQUIRE(recording.traces.size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Trace& trace = recording.traces[rank];
    CHECK(trace.parts().size() == 2 * 2 * 3);  // two steps of three micro-batches, forward and backward
    for (const Trace::Part& part : trace.parts()) {
      CHECK(part.stage == static_cast<int>(rank));
      CHECK(part.begin < part.end);
    }
    REQUIRE(trace.memory().size() == trace.events().size());
    std::int64_t most = 0;
    for (const Trace::Bytes& bytes : trace.memory())
      most = std::max(most, std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
    CHECK(most <= prediction.memory[rank].peak);
    CHECK(static_cast<double>(most) > 0.8 * static_cast<double>(prediction.memory[rank].peak));  // without workspaces
    const auto& spans = recording.timeline.ranks[rank].program;
    double kernels = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      CHECK(spans[i].begin <= spans[i].end);
      if (i > 0) CHECK(spans[i - 1].end <= spans[i].begin + 1e-12);
      if (trace.events()[spans[i].index].kind == Trace::EventKind::kernel) kernels += spans[i].end - spans[i].begin;
    }
    double expected = 0;
    for (const auto& [name, seconds] : prediction.ranks[rank].kernels) expected += seconds;
    CHECK(kernels == doctest::Approx(expected));
  }
}

TEST_CASE("many micro-batches are recorded as few") {
  const GptOptions options = options_of({"--layers", "4", "--mesh", "pp=2", "--micro-batches", "40"});
  CHECK(record(options, program_of(options), ByFlops()).micro_batches == 4);
}

TEST_CASE("a recording becomes a profile: its computations, waits, messages and memory") {
  const GptOptions options = two_stages();
  const run_view::Profile profile = profile_of(record(options, program_of(options), ByFlops()), options);
  CHECK(profile.predicted);
  CHECK(profile.ranks() == 2);
  REQUIRE(profile.steps.size() == 1);
  const run_view::Step& step = profile.steps[0];
  REQUIRE(step.ranks.size() == 2);
  CHECK(step.messages.size() == 2 * 3);  // an activation and a gradient of each micro-batch
  for (const run_view::Message& message : step.messages) {
    CHECK(message.from != message.to);
    CHECK(message.sent <= message.arrived);
    CHECK(message.bytes > 0);
  }
  for (const run_view::RankStep& rank : step.ranks) {
    CHECK(std::ranges::count(rank.parts, "forward", &run_view::Part::kind) == 3);
    CHECK(std::ranges::count(rank.parts, "backward", &run_view::Part::kind) == 3);
    CHECK(rank.parts.back().kind == "update");
    CHECK(rank.waiting() + rank.working() == doctest::Approx(rank.end - rank.begin));
    CHECK(rank.end <= step.seconds + 1e-12);
    CHECK(!rank.memory.empty());
  }
  // The second stage waits for the first activation, which the first stage sends last.
  CHECK(step.ranks[1].waits.front().last == 0);
  const std::vector<run_view::PathPiece> path = run_view::critical_path(step);
  for (std::size_t i = 1; i < path.size(); ++i) CHECK(path[i].begin == path[i - 1].end);
  CHECK(path.back().end == doctest::Approx(step.seconds));
}

TEST_CASE("a page has the answer, the step and all settings, and needs no other file") {
  const GptOptions options = two_stages();
  const DryProgram program = program_of(options);
  Answer answer;
  answer.question.cluster.name = "</script>";
  answer.question.cluster.device.f32_flops = 1e12;
  answer.question.model = model_facts(options, program);
  answer.question.per_second = "tok/s";
  answer.found.choices.push_back({options, predict(options, program, ByFlops())});
  answer.found.front.push_back({options, 1, 2000});
  answer.found.others.push_back({options, 2, 3000});
  const run_view::Page page = page_of(answer, record(options, program, ByFlops()));
  CHECK(page.settings.size() == 2);
  CHECK(page.texts.at(1).text.find("a step takes") != std::string::npos);
  const std::string html = run_view::to_html(page);
  CHECK(html.starts_with(run_view::page_kind.beginning));
  CHECK(count(html, "</script>") == 2);  // of the data, and of the scripts
  CHECK(html.find("src=") == std::string::npos);
  CHECK(html.find("http:") == html.find("http://www.w3.org/2000/svg"));  // a name, which nothing loads
}
