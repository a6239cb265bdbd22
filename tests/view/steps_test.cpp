// Traces of --profile become steps: parts, waits with the rank that they were for, messages, memory.
#include "ops/view/steps.h"

#include <doctest/doctest.h>

#include "tests/support/errors.h"
#include "tests/view/traces.h"

using namespace trireme;
using namespace trireme::run_view;
using trireme::testing::caught;

namespace {

Profile profile(const std::vector<RankTrace>& ranks, const std::string& mesh = "dp=2,tp=1,pp=1") {
  return profile_of(parse_trace(trace_text(ranks, mesh), "trace.json"), "trace.json");
}

}  // namespace

TEST_CASE("view: a trace becomes steps") {
  const Profile p = profile(slow_rank());
  CHECK(p.ranks() == 2);
  CHECK(p.hosts == std::vector<std::string>{"h1", "h2"});
  REQUIRE(p.steps.size() == 1);
  const Step& step = p.steps[0];
  CHECK(step.name == "step 3");
  CHECK(step.seconds == doctest::Approx(0.1));
  REQUIRE(step.ranks.size() == 2);
  const RankStep& rank = step.ranks[0];
  REQUIRE(rank.parts.size() == 3);
  CHECK(rank.parts[0].kind == "forward");
  CHECK(rank.parts[1].micro_batch == 0);
  CHECK(rank.parts[2].kind == "update");
  CHECK(rank.modules.size() == 1);
  CHECK(rank.kernels.size() == 1);
  CHECK(rank.memory.size() == 3);
}

TEST_CASE("view: a wait knows which rank came last") {
  const Step step = profile(slow_rank()).steps[0];
  REQUIRE(step.ranks[0].waits.size() == 1);  // the wait, the run and the sum are one
  const Exchange& wait = step.ranks[0].waits[0];
  CHECK(wait.last == 1);
  CHECK(wait.late() == doctest::Approx(0.040).epsilon(0.001));
  CHECK(wait.seconds() == doctest::Approx(0.045));
  CHECK(wait.bytes == 32);
  CHECK(wait.site == "blocks.0.attn");
  CHECK(wait.axis() == "dp");
  CHECK(step.ranks[1].waits[0].last == -1);
  CHECK(step.ranks[0].waiting() == doctest::Approx(0.045));
  CHECK(step.ranks[0].working() == doctest::Approx(0.055));
}

TEST_CASE("view: the critical path goes through the rank that the others wait for") {
  const std::vector<PathPiece> path = critical_path(profile(slow_rank()).steps[0]);
  double seconds = 0, of_slow = 0;
  for (const PathPiece& piece : path) {
    seconds += piece.end - piece.begin;
    if (piece.rank == 1) of_slow += piece.end - piece.begin;
  }
  CHECK(seconds == doctest::Approx(0.1));
  CHECK(of_slow > 0.089);
  CHECK(path.front().begin == 0);
}

TEST_CASE("view: messages join their two ends, and a receive waits for the sender") {
  std::vector<RankTrace> ranks = {{0, "rank 0", "", {}}, {1, "rank 1", "", {}}};
  for (int k = 0; k < 2; ++k) {
    ProfileEvent send = event("message", "send", 0.02 + 0.03 * k, 0.021 + 0.03 * k);
    send.transfer = ProfileTransfer{.group = "pp[data=0,tp=0]", .site = "", .bytes = 64, .peer = 1, .tag = 2};
    ranks[0].events.push_back(send);
    ProfileEvent recv = event("message", "recv", 0.011 + 0.02 * k, 0.022 + 0.03 * k);
    recv.transfer = ProfileTransfer{.group = "pp[data=0,tp=0]", .site = "", .bytes = 64, .peer = 0, .tag = 2};
    ranks[1].events.push_back(recv);
    ranks[1].events.push_back(event("collective", "wait", 0.010 + 0.02 * k, 0.0221 + 0.03 * k));
  }
  for (RankTrace& rank : ranks) rank.events.push_back(event("step", "step 1", 0, 0.1));
  const Step step = profile(ranks, "dp=1,tp=1,pp=2").steps[0];
  REQUIRE(step.messages.size() == 2);
  CHECK(step.messages[1].sent == doctest::Approx(0.051));
  CHECK(step.messages[1].arrived == doctest::Approx(0.052));
  CHECK(step.messages[1].from == 0);
  REQUIRE(step.ranks[1].waits.size() == 2);
  CHECK(step.ranks[1].waits[0].last == 0);
  CHECK(step.ranks[1].waits[1].ready == doctest::Approx(0.051));
}

TEST_CASE("view: a wait for a collective in the background finds it") {
  std::vector<RankTrace> ranks = {{0, "rank 0", "", {}}, {1, "rank 1", "", {}}};
  for (const int rank : {0, 1}) {
    ProfileEvent sum = event("collective", "all_reduce", rank == 0 ? 0.01 : 0.04, 0.05, 1);
    sum.transfer = ProfileTransfer{.group = "data[pp=0,tp=0]", .site = "", .bytes = 400, .number = 7};
    ranks[static_cast<std::size_t>(rank)].events = {sum, event("collective", "wait", 0.03 + 0.01 * rank, 0.0501),
                                                    event("step", "step 1", 0, 0.06)};
  }
  const Step step = profile(ranks).steps[0];
  CHECK(step.ranks[0].background.size() == 1);
  REQUIRE(step.ranks[0].waits.size() == 1);
  CHECK(step.ranks[0].waits[0].bytes == 400);
  CHECK(step.ranks[0].waits[0].last == 1);
  CHECK(step.ranks[0].waits[0].late() == doctest::Approx(0.01));
}

TEST_CASE("view: files that are no trace, or no whole one, are refused") {
  const auto code_of = [](const std::string& text) {
    return caught([&] { profile_of(parse_trace(text, "trace.json"), "trace.json"); }).code;
  };
  CHECK(code_of(trace_text(slow_rank())) == ExitCode::ok);
  CHECK(code_of("") == ExitCode::data);
  CHECK(code_of("[]") == ExitCode::data);
  CHECK(code_of("{\"traceEvents\": []}") == ExitCode::data);
  CHECK(code_of(trace_text({slow_rank()[0]})) == ExitCode::data);                     // rank 1 has no step
  CHECK(code_of(trace_text(slow_rank(), "dp=1,tp=1,pp=1")) == ExitCode::data);        // more ranks than the mesh has
  CHECK(code_of(trace_text(slow_rank(), "dp=1000000,tp=1,pp=1")) == ExitCode::data);  // no memory is taken for them
  CHECK(code_of(trace_text(slow_rank(), "nonsense")) == ExitCode::data);
  CHECK(code_of(trace_text(slow_rank(), "dp=2,tp=1,pp=1", "{}")) == ExitCode::data);
  std::string text = trace_text(slow_rank());
  text.replace(text.find("\"ts\":"), 5, "\"ts\":\"x\",\"was\":");
  CHECK(code_of(text) == ExitCode::data);
}

TEST_CASE("view: places along all axes") {
  const MeshShape mesh = parse_mesh("dp=2,tp=2,pp=2,cp=2,ep=2", 0);
  const Place place = place_of(13, mesh);  // 13 = (1 * 4 + 2) * 2 + 1
  CHECK(place.pp == 1);
  CHECK(place.dp == 1);
  CHECK(place.cp == 0);
  CHECK(place.tp == 1);
  CHECK(place.ep == 0);
  CHECK(place.edp == 1);
}
