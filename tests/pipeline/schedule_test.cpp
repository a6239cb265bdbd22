// Schedules as data: closed forms of bubble, peak and messages; every small schedule is proved; broken ones are
// refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/stage_plan.h"
#include "parallel/pipeline/timeline.h"

using namespace trireme;
using namespace trireme::pipeline;

namespace {

/// The message of the Error that `action` throws, with its code checked; "" when it throws none.
std::string error_of(const std::function<void()>& action, ExitCode code) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

void check_refused(const Schedule& schedule, const std::vector<std::string>& parts) {
  const std::string message = error_of([&] { check(schedule); }, ExitCode::internal);
  for (const auto& part : parts)
    CHECK_MESSAGE(message.find(part) != std::string::npos, "'", part, "' is not in: ", message);
}

std::size_t index_of(const Schedule& schedule, const Action& action) {
  const auto& list = schedule.ranks[static_cast<std::size_t>(action.stage)];
  const auto found = std::find(list.begin(), list.end(), action);
  REQUIRE(found != list.end());
  return static_cast<std::size_t>(found - list.begin());
}

void remove(Schedule& schedule, const Action& action) {
  auto& list = schedule.ranks[static_cast<std::size_t>(action.stage)];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index_of(schedule, action)));
}

void swap(Schedule& schedule, const Action& a, const Action& b) {
  auto& list = schedule.ranks[static_cast<std::size_t>(a.stage)];
  std::swap(list[index_of(schedule, a)], list[index_of(schedule, b)]);
}

}  // namespace

TEST_CASE("every small schedule is proved, with the closed forms of its figures") {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      CAPTURE(stages);
      CAPTURE(microbatches);
      const Proof all = check(gpipe(stages, microbatches)), alternating = check(one_f_one_b(stages, microbatches));
      const Proof forwards = check(forward_only(stages, microbatches));
      const double ideal = static_cast<double>(stages - 1) / microbatches;
      for (const Proof* proof : {&all, &alternating, &forwards}) {
        CHECK(proof->bubble_of_ideal == doctest::Approx(ideal));
        CHECK(proof->bubble_of_total == doctest::Approx(ideal / (1 + ideal)));
      }
      CHECK(all.messages == 2 * (stages - 1) * microbatches);
      CHECK(alternating.messages == all.messages);
      CHECK(forwards.messages == (stages - 1) * microbatches);
      for (int stage = 0; stage < stages; ++stage) {
        const auto s = static_cast<std::size_t>(stage);
        CHECK(all.peak_live[s] == microbatches);
        CHECK(alternating.peak_live[s] == std::min(stages - stage, microbatches));
        CHECK(forwards.peak_live[s] == 1);
      }
    }
  }
}

TEST_CASE(
    "four stages and eight micro-batches: the bubble is 37.5% of ideal time and 27% of the total, in both schedules") {
  for (const Schedule& schedule : {gpipe(4, 8), one_f_one_b(4, 8)}) {
    const Proof proof = check(schedule);
    CHECK(proof.bubble_of_ideal == doctest::Approx(0.375));
    CHECK(proof.bubble_of_total == doctest::Approx(3.0 / 11.0));
    CHECK(simulate(schedule)[0].back().end == 33);  // (8 + 4 - 1) x (1 + 2)
  }
}

TEST_CASE("1F1B in full, for two stages and two micro-batches") {
  using enum ActionKind;
  const Schedule schedule = one_f_one_b(2, 2);
  const std::vector<Action> first = {{forward, 0, 0},         {send_activation, 0, 0}, {forward, 0, 1},
                                     {send_activation, 0, 1}, {recv_gradient, 0, 0},   {backward, 0, 0},
                                     {recv_gradient, 0, 1},   {backward, 0, 1}};
  const std::vector<Action> last = {{recv_activation, 1, 0}, {forward, 1, 0}, {backward, 1, 0}, {send_gradient, 1, 0},
                                    {recv_activation, 1, 1}, {forward, 1, 1}, {backward, 1, 1}, {send_gradient, 1, 1}};
  CHECK(schedule.ranks[0] == first);
  CHECK(schedule.ranks[1] == last);
}

TEST_CASE("broken schedules are refused, with rank, action and what is missing") {
  using enum ActionKind;
  SUBCASE("a send without its receive") {
    Schedule schedule = one_f_one_b(3, 4);
    remove(schedule, {recv_activation, 2, 3});
    check_refused(schedule, {"rank 2", "forward of micro-batch 3", "missing recv_activation"});
  }
  SUBCASE("a receive without its send") {
    Schedule schedule = gpipe(3, 4);
    remove(schedule, {send_gradient, 1, 0});
    check_refused(schedule, {"rank 1, action", "backward of micro-batch 0", "missing send_gradient after it"});
  }
  SUBCASE("a message received after it is used") {
    Schedule schedule = gpipe(2, 2);
    swap(schedule, {recv_activation, 1, 1}, {forward, 1, 1});
    check_refused(schedule,
                  {"rank 1, action 2 (forward of micro-batch 1 on stage 1)", "recv_activation", "at action 3"});
  }
  SUBCASE("the ends of a channel disagree on the order") {
    Schedule schedule = gpipe(2, 3);
    swap(schedule, {recv_gradient, 0, 0}, {recv_gradient, 0, 1});
    swap(schedule, {backward, 0, 0}, {backward, 0, 1});
    check_refused(schedule, {"rank 0", "recv_gradient of micro-batch 1", "rank 1", "send_gradient of micro-batch 0"});
  }
  SUBCASE("a forward left out") {
    Schedule schedule = gpipe(1, 2);
    remove(schedule, {forward, 0, 1});
    check_refused(schedule, {"rank 0", "missing forward of micro-batch 1"});
  }
  SUBCASE("a backward left out, with its messages") {
    Schedule schedule = gpipe(1, 2);
    remove(schedule, {backward, 0, 1});
    check_refused(schedule, {"rank 0, action 1 (forward of micro-batch 1", "missing backward after it"});
  }
  SUBCASE("a micro-batch forwarded twice") {
    Schedule schedule = one_f_one_b(2, 2);
    schedule.ranks[0].insert(schedule.ranks[0].begin() + 2, {forward, 0, 0});
    check_refused(schedule, {"rank 0, action 2", "action 0 is the same"});
  }
  SUBCASE("a backward before its forward") {
    Schedule schedule = one_f_one_b(1, 3);
    swap(schedule, {forward, 0, 1}, {backward, 0, 1});
    check_refused(schedule, {"rank 0, action 2 (backward of micro-batch 1 on stage 0)", "expected forward before it"});
  }
  SUBCASE("an action of another stage") {
    Schedule schedule = one_f_one_b(2, 1);
    schedule.ranks[0][0].stage = 1;
    check_refused(schedule, {"rank 0, action 0", "stage 0"});
  }
  SUBCASE("a micro-batch that does not exist") {
    Schedule schedule = one_f_one_b(2, 1);
    schedule.ranks[1][0].microbatch = 1;
    check_refused(schedule, {"rank 1, action 0", "from 0 to 0"});
  }
  SUBCASE("a message past the end of the pipeline") {
    Schedule schedule = gpipe(2, 1);
    schedule.ranks[1].push_back({send_activation, 1, 0});
    check_refused(schedule, {"rank 1", "send_activation", "stage 1 of 2 has none"});
  }
  SUBCASE("a list for every stage") {
    Schedule schedule = gpipe(2, 1);
    schedule.ranks.pop_back();
    check_refused(schedule, {"2 stages", "1 lists"});
  }
}

TEST_CASE("deadlocks are found") {
  using enum ActionKind;
  SUBCASE("a rank that waits for a gradient before it sends the activation this gradient comes from") {
    Schedule schedule;
    schedule.name = "greedy";
    schedule.stages = 2;
    schedule.microbatches = 2;
    // Stage 0 backwards micro-batch 0 before it forwards 1; stage 1 wants both forwards first.
    schedule.ranks = {{{forward, 0, 0},
                       {send_activation, 0, 0},
                       {recv_gradient, 0, 0},
                       {backward, 0, 0},
                       {forward, 0, 1},
                       {send_activation, 0, 1},
                       {recv_gradient, 0, 1},
                       {backward, 0, 1}},
                      {{recv_activation, 1, 0},
                       {forward, 1, 0},
                       {recv_activation, 1, 1},
                       {forward, 1, 1},
                       {backward, 1, 0},
                       {send_gradient, 1, 0},
                       {backward, 1, 1},
                       {send_gradient, 1, 1}}};
    check_refused(schedule, {"deadlock", "rank 0, action 2 (recv_gradient of micro-batch 0 on stage 0)", "rank 1"});
  }
  SUBCASE("sends that complete only when they are buffered") {
    // Stage 0 hands over all micro-batches before it takes a gradient; stage 1 hands back a gradient before it takes
    // the next micro-batch. With three micro-batches the two still meet; the fourth makes each wait for the other's
    // receive.
    const auto mixed = [](int microbatches) {
      Schedule schedule = gpipe(2, microbatches);
      schedule.ranks[1] = one_f_one_b(2, microbatches).ranks[1];
      return schedule;
    };
    CHECK_NOTHROW(check(mixed(3)));
    check_refused(mixed(4),
                  {"deadlock", "rank 0, action 5 (send_activation of micro-batch 2", "rank 1", "before its action 5"});
  }
}

TEST_CASE("the schedule --pipeline names") {
  CHECK(make_schedule("gpipe", 3, 2).name == "gpipe");
  CHECK(make_schedule("1f1b", 3, 2).name == "1f1b");
  CHECK(check(make_schedule("gpipe", 1, 8)).peak_live[0] == 1);  // one stage: gradient accumulation
  CHECK(error_of([] { make_schedule("zigzag", 2, 2); }, ExitCode::usage).find("--pipeline") != std::string::npos);
  CHECK(error_of([] { make_schedule("gpipe", 2, 0); }, ExitCode::usage).find("1 micro-batch") != std::string::npos);
}

TEST_CASE("the timeline in text") {
  const std::string expected =
      "1f1b: 2 stages, 2 micro-batches; bubble 50.0% of ideal time, 33.3% of total; at most 2 micro-batches alive\n"
      "stage 0 |F0 F1 .  .  B0 -- .  B1 --\n"
      "stage 1 |.  F0 B0 -- F1 B1 --\n";
  CHECK(render(one_f_one_b(2, 2)) == expected);
  const std::string cut = render(gpipe(2, 12), 40);
  CHECK(cut.find("stage 1 |.   F0  F1") != std::string::npos);
  const std::string last_line = cut.substr(cut.rfind('\n', cut.size() - 2) + 1);
  CHECK(last_line.size() == 41);  // 40 and the newline
  CHECK(last_line.substr(37) == "...\n");
}

TEST_CASE("stage plan: even counts, left-over blocks to the middle, then the first stage, never the last") {
  const auto counts = [](int layers, int stages) {
    std::vector<int> result;
    for (const BlockRange& range : stage_plan(layers, stages)) result.push_back(range.count);
    return result;
  };
  CHECK(counts(8, 4) == std::vector{2, 2, 2, 2});
  CHECK(counts(9, 4) == std::vector{2, 3, 2, 2});
  CHECK(counts(10, 4) == std::vector{2, 3, 3, 2});
  CHECK(counts(11, 4) == std::vector{3, 3, 3, 2});
  CHECK(counts(3, 2) == std::vector{2, 1});
  CHECK(counts(5, 1) == std::vector{5});
  for (int stages = 1; stages <= 7; ++stages) {
    for (int layers = stages; layers <= 3 * stages; ++layers) {
      const auto plan = stage_plan(layers, stages);
      int next = 0;
      for (const BlockRange& range : plan) {
        CHECK(range.first == next);
        CHECK(range.count >= 1);
        next = range.end();
      }
      CHECK(next == layers);
    }
  }
  const std::string message = error_of([] { stage_plan(3, 4); }, ExitCode::usage);
  CHECK(message.find("--layers") != std::string::npos);
  CHECK(message.find("--mesh") != std::string::npos);
}
