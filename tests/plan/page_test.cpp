// Recordings of simulated steps, and the page that shows them.
#include "ops/plan/page.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "ops/plan/step_picture.h"
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

TEST_CASE("a timeline has a box for each forward and backward") {
  const GptOptions options = two_stages();
  const std::string svg = draw_timeline(record(options, program_of(options), ByFlops()));
  CHECK(count(svg, "<title>forward of micro-batch") == 2 * 3);
  CHECK(count(svg, "<title>backward of micro-batch") == 2 * 3);
  CHECK(svg.find(">pp 1<") != std::string::npos);
}

TEST_CASE("a picture of memory names the fullest moment") {
  const GptOptions options = two_stages();
  const std::string svg = draw_memory(record(options, program_of(options), ByFlops()));
  CHECK(svg.find("pp 0: most, ") != std::string::npos);  // the first stage keeps the most activations
  CHECK(svg.find("of micro-batch ") != std::string::npos);
  CHECK(svg.find(">activations<") != std::string::npos);
}

TEST_CASE("a page has the answer, the step and the memory, and needs no other file") {
  const GptOptions options = two_stages();
  const DryProgram program = program_of(options);
  Answer answer;
  answer.question.cluster.name = "<a & b>";
  answer.question.cluster.device.f32_flops = 1e12;
  answer.question.model = model_facts(options, program);
  answer.question.per_second = "tok/s";
  answer.found.choices.push_back({options, predict(options, program, ByFlops())});
  answer.found.front.push_back({options, 1, 2000});
  answer.found.others.push_back({options, 2, 3000});
  const std::string page = to_html(answer, record(options, program, ByFlops()));
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("&lt;a &amp; b&gt;; ") != std::string::npos);
  CHECK(count(page, "<svg ") == 3);
  CHECK(page.find("a step takes") != std::string::npos);
  for (const char* id : {"step-title", "memory-title", "front-title"})
    CHECK(count(page, std::string("id=\"") + id + "\"") == 1);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("href=") == std::string::npos);
}
