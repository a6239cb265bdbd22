// Schedules as lists of actions: closed forms of bubble, peak and messages. Every small schedule passes the checker,
// and broken ones are refused.
#include <doctest/doctest.h>

#include <algorithm>

#include "core/error.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/drawing.h"
#include "parallel/pipeline/schedules.h"
#include "parallel/pipeline/stage_plan.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::pipeline;
using namespace trireme::testing;

namespace {

void check_refused(const Schedule& schedule, const std::vector<std::string>& parts) {
  const std::string message = error_of([&] { check(schedule); }, ExitCode::internal);
  for (const auto& part : parts)
    CHECK_MESSAGE(message.find(part) != std::string::npos, "'", part, "' is not in: ", message);
}

std::size_t index_of(const Schedule& schedule, const Action& action) {
  const auto& list = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(action.stage))];
  const auto found = std::find(list.begin(), list.end(), action);
  REQUIRE(found != list.end());
  return static_cast<std::size_t>(found - list.begin());
}

void remove(Schedule& schedule, const Action& action) {
  auto& list = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(action.stage))];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(index_of(schedule, action)));
}

void swap(Schedule& schedule, const Action& a, const Action& b) {
  auto& list = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(a.stage))];
  std::swap(list[index_of(schedule, a)], list[index_of(schedule, b)]);
}

}  // namespace

TEST_CASE("every small schedule passes the check, with the closed forms of its figures") {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      CAPTURE(stages);
      CAPTURE(microbatches);
      const ScheduleCosts all = check(gpipe(stages, microbatches)),
                          alternating = check(one_f_one_b(stages, microbatches));
      const ScheduleCosts forwards = check(forward_only(stages, microbatches));
      const double ideal = static_cast<double>(stages - 1) / microbatches;
      for (const ScheduleCosts* figures : {&all, &alternating, &forwards}) {
        CHECK(figures->bubble_of_ideal == doctest::Approx(ideal));
        CHECK(figures->bubble_of_total == doctest::Approx(ideal / (1 + ideal)));
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

TEST_CASE("no schedule of up to 6 stages, micro-batches and chunks deadlocks with rendezvous sends") {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int microbatches = 1; microbatches <= 6; ++microbatches) {
      CAPTURE(ranks);
      CAPTURE(microbatches);
      for (const std::string& name : schedule_examples(1))
        CHECK(check(make_schedule(name, ranks, microbatches)).messages == 2 * (ranks - 1) * microbatches);
      for (int chunks = 1; chunks <= 6; ++chunks) {
        CAPTURE(chunks);
        const ScheduleCosts figures = check(interleaved(ranks, microbatches, chunks));
        CHECK(figures.messages == (ranks == 1 ? 0 : 2 * (ranks * chunks - 1) * microbatches));
        CHECK(check(forward_only(ranks, microbatches, chunks)).messages == figures.messages / 2);
      }
    }
  }
}

TEST_CASE("interleaved: the bubble is (P - 1) / (V M) for any M of P or more, and never more than 1F1B's") {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int microbatches = 1; microbatches <= 13; ++microbatches) {
        CAPTURE(ranks);
        CAPTURE(chunks);
        CAPTURE(microbatches);
        const ScheduleCosts figures = check(interleaved(ranks, microbatches, chunks));
        const double full = static_cast<double>(ranks - 1) / microbatches;
        CHECK(figures.bubble_of_ideal <= full + 1e-9);
        if (microbatches >= ranks) CHECK(figures.bubble_of_ideal == doctest::Approx(full / chunks));
        // Runs of M / floor(M / P) micro-batches, rounded up: P micro-batches if P divides M.
        const int whole = std::max(1, microbatches / ranks), run = (microbatches + whole - 1) / whole;
        for (int rank = 0; microbatches >= ranks && rank < ranks; ++rank) {
          const int warm_up = 2 * (ranks - 1 - rank) + (chunks - 1) * run;
          CHECK(figures.peak_live[static_cast<std::size_t>(rank)] == std::min(warm_up + 1, chunks * microbatches));
        }
      }
    }
  }
}

TEST_CASE("zero-bubble: a third of 1F1B's bubble, and on no rank more activations than on 1F1B's first") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      CAPTURE(ranks);
      CAPTURE(microbatches);
      const ScheduleCosts figures = check(zero_bubble(ranks, microbatches)),
                          full = check(one_f_one_b(ranks, microbatches));
      // F, B and W cost 1 each. A rank waits ranks - 1 units, and one more for each micro-batch fewer than ranks.
      const int waiting = ranks - 1 + std::max(0, ranks - microbatches);
      CHECK(figures.bubble_of_ideal == doctest::Approx(static_cast<double>(waiting) / (3 * microbatches)));
      if (microbatches >= ranks) CHECK(figures.bubble_of_ideal == doctest::Approx(full.bubble_of_ideal / 3));
      for (const int live : figures.peak_live) CHECK(live <= full.peak_live.front());
      CHECK(figures.messages == full.messages);
    }
  }
  // With other costs a rank waits (P - 1) (F + B - W).
  CHECK(check(zero_bubble(4, 8), {.forward = 2, .input = 3, .weight = 2}).bubble_of_ideal ==
        doctest::Approx(3.0 * (2 + 3 - 2) / (8 * 7)));
  CHECK(check(one_f_one_b(4, 8), {.forward = 2, .input = 3, .weight = 2}).bubble_of_ideal == doctest::Approx(3.0 / 8));
}

TEST_CASE("messages are counted per rank: ends of a pipeline send half of what the others do, with one chunk") {
  CHECK(check(one_f_one_b(4, 8)).sent == std::vector{8, 16, 16, 8});
  CHECK(check(interleaved(2, 4, 2)).sent == std::vector{12, 12});  // forward 0>1, 1>0, 0>1, and the same back
  CHECK(check(interleaved(1, 4, 3)).sent == std::vector{0});
}

TEST_CASE(
    "four stages and eight micro-batches: the bubble is 37.5% of ideal time and 27% of the total, in both schedules") {
  for (const Schedule& schedule : {gpipe(4, 8), one_f_one_b(4, 8)}) {
    const ScheduleCosts figures = check(schedule);
    CHECK(figures.bubble_of_ideal == doctest::Approx(0.375));
    CHECK(figures.bubble_of_total == doctest::Approx(3.0 / 11.0));
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
  SUBCASE("as many stages for every list") {
    Schedule schedule = gpipe(3, 1);
    schedule.ranks.pop_back();
    check_refused(schedule, {"3 stages", "2 lists"});
  }
  SUBCASE("a chunk of another rank") {
    Schedule schedule = interleaved(2, 2, 2);
    schedule.ranks[1][0].stage = 2;
    check_refused(schedule, {"rank 1, action 0", "stage 1, 3, which lives here"});
  }
  SUBCASE("weights before the input they wait behind") {
    Schedule schedule = zero_bubble(2, 2);
    swap(schedule, {backward_input, 1, 0}, {backward_weight, 1, 0});
    check_refused(schedule, {"rank 1", "backward_weight of micro-batch 0", "expected backward_input before it"});
  }
  SUBCASE("weights left out") {
    Schedule schedule = zero_bubble(2, 2);
    remove(schedule, {backward_weight, 0, 1});
    check_refused(schedule, {"rank 0", "backward_input of micro-batch 1 on stage 0", "missing backward_weight after"});
  }
  SUBCASE("both a whole backward and a part") {
    Schedule schedule = zero_bubble(1, 1);
    schedule.ranks[0].push_back({backward, 0, 0});
    check_refused(schedule, {"rank 0, action 3", "stage 0 of 1 has none of these"});
  }
  SUBCASE("weights of a later micro-batch first: other bits than 1F1B's") {
    Schedule schedule = zero_bubble(2, 3);
    swap(schedule, {backward_weight, 1, 1}, {backward_weight, 1, 2});
    check_refused(schedule, {"rank 1", "backward_weight", "micro-batch 1 before it", "summed in the order"});
  }
  SUBCASE("a whole pipeline that goes back in another order") {
    Schedule schedule = gpipe(1, 2);
    swap(schedule, {backward, 0, 0}, {backward, 0, 1});
    check_refused(schedule, {"rank 0, action 2 (backward of micro-batch 1", "summed in the order of micro-batches"});
  }
  SUBCASE("a chunk before the one that it takes its input from, on one rank") {
    Schedule schedule = interleaved(1, 1, 2);
    swap(schedule, {forward, 0, 0}, {forward, 1, 0});
    check_refused(schedule, {"rank 0, action 0 (forward of micro-batch 0 on stage 1)", "expected action 1"});
  }
}

TEST_CASE("deadlocks are found") {
  using enum ActionKind;
  SUBCASE("a rank that waits for a gradient before it sends the activation this gradient comes from") {
    Schedule schedule;
    schedule.name = "greedy";
    schedule.stages = 2;
    schedule.microbatches = 2;
    // Stage 0 runs the backward of micro-batch 0 before the forward of 1; stage 1 needs both forwards first.
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
    // Stage 0 sends all micro-batches before it receives a gradient. Stage 1 sends a gradient back before it receives
    // the next micro-batch. This works with three micro-batches; with four, each stage waits for the other's receive.
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

TEST_CASE("a receive right before its computation may be too late with chunks: that is found") {
  // Each rank sends an activation to the other, and waits until it is received.
  Schedule schedule = interleaved(2, 4, 2);
  for (auto& list : schedule.ranks) {
    std::vector<Action> late;
    for (const Action& action : list) {
      if (action.kind == ActionKind::recv_activation || action.kind == ActionKind::recv_gradient) continue;
      if (action.kind == ActionKind::forward && action.stage > 0)
        late.push_back({ActionKind::recv_activation, action.stage, action.microbatch});
      if (action.kind == ActionKind::backward && action.stage < 3)
        late.push_back({ActionKind::recv_gradient, action.stage, action.microbatch});
      late.push_back(action);
    }
    list = late;
  }
  check_refused(schedule, {"deadlock"});
}

TEST_CASE("the schedule --pipeline names") {
  CHECK(schedule_examples() == std::vector<std::string>{"gpipe", "1f1b", "zero-bubble", "interleaved:2"});
  for (const std::string& name : schedule_examples()) CHECK(make_schedule(name, 3, 2).name == name);
  CHECK(make_schedule("interleaved:2", 3, 2).stages == 6);
  CHECK(make_schedule("interleaved:1", 3, 2).ranks == one_f_one_b(3, 2).ranks);
  for (const char* name : {"gpipe", "zero-bubble"})  // one stage: gradient accumulation
    CHECK(check(make_schedule(name, 1, 8)).peak_live[0] == 1);
  CHECK(check(make_schedule("interleaved:3", 1, 8)).peak_live[0] == 3);
  for (const char* name : {"interleaved", "interleaved:", "interleaved:0", "interleaved:-1", "interleaved:2x",
                           "interleaved:99999999999", "Interleaved:2"}) {
    CAPTURE(name);
    CHECK(error_of([&] { make_schedule(name, 2, 2); }, ExitCode::usage).find("--pipeline") != std::string::npos);
  }
  CHECK(error_of([] { make_schedule("zigzag", 2, 2); }, ExitCode::usage).find("--pipeline") != std::string::npos);
  CHECK(error_of([] { make_schedule("gpipe", 2, 0); }, ExitCode::usage).find("1 micro-batch") != std::string::npos);
}

TEST_CASE("the timeline in text") {
  CHECK(render(one_f_one_b(2, 2)) ==
        "1f1b: 2 stages, 2 micro-batches; bubble 50.0% of ideal time, 33.3% of total\n"
        "rank 0 |F0 F1 .  .  B0 -- .  B1 --\n"
        "rank 1 |.  F0 B0 -- F1 B1 --\n"
        "activations alive at most, per rank: 2 1\n"
        "messages sent, per rank:             2 2 (in all 4)\n");
  CHECK(render(zero_bubble(2, 2)) ==
        "zero-bubble: 2 stages, 2 micro-batches; bubble 16.7% of ideal time, 14.3% of total\n"
        "rank 0 |F0 F1 .  B0 W0 B1 W1\n"
        "rank 1 |.  F0 B0 F1 B1 W0 W1\n"
        "activations alive at most, per rank: 2 2\n"
        "messages sent, per rank:             2 2 (in all 4)\n");
  CHECK(render(interleaved(2, 2, 2)) ==
        "interleaved:2: 4 stages on 2 ranks, 2 micro-batches; bubble 25.0% of ideal time, 20.0% of total\n"
        "rank 0 |F0a F1a F0b F1b .   .   B0b --- .   B1b --- B0a --- B1a ---\n"
        "rank 1 |.   F0a F1a F0b B0b --- F1b B1b --- B0a --- B1a ---\n"
        "activations alive at most, per rank: 4 3\n"
        "messages sent, per rank:             6 6 (in all 12)\n");
  const std::string cut = render(gpipe(2, 12), 40);
  CHECK(cut.find("rank 1 |.   F0  F1") != std::string::npos);
  const std::string row = cut.substr(cut.find("rank 1"), 41);
  CHECK(row.substr(37) == "...\n");
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

TEST_CASE("stage plan by cost: a heavy head takes the place of blocks, and no plan has a cheaper worst stage") {
  const auto counts = [](int layers, int stages, const StageCosts& costs) {
    std::vector<int> result;
    for (const BlockRange& range : stage_plan(layers, stages, costs)) result.push_back(range.count);
    return result;
  };
  CHECK(counts(8, 2, {.head = 4}) == std::vector{6, 2});
  CHECK(counts(6, 2, {.head = 10}) == std::vector{5, 1});  // at least one
  CHECK(counts(8, 4, {.embedding = 0.1, .head = 0.2}) == std::vector{2, 2, 2, 2});
  CHECK(counts(9, 3, {.embedding = 1, .head = 2}) == std::vector{3, 4, 2});
  const auto worst = [](const std::vector<int>& plan, const StageCosts& costs) {
    double most = 0;
    for (std::size_t s = 0; s < plan.size(); ++s) {
      most = std::max(most,
                      (s == 0 ? costs.embedding : 0) + costs.block * plan[s] + (s + 1 == plan.size() ? costs.head : 0));
    }
    return most;
  };
  for (const StageCosts& costs : {StageCosts{0.3, 1, 2.5}, StageCosts{2.2, 1, 0.4}, StageCosts{5, 2, 3}}) {
    for (int layers = 3; layers <= 10; ++layers) {
      double best = 1e9;
      for (int a = 1; a < layers - 1; ++a) {
        for (int b = 1; a + b < layers; ++b) best = std::min(best, worst({a, b, layers - a - b}, costs));
      }
      CHECK(worst(counts(layers, 3, costs), costs) == doctest::Approx(best));
    }
  }
}

TEST_CASE("stage plan of blocks that cost differently: no plan has a cheaper worst stage, and stages are alike") {
  const auto counts = [](const StageCosts& costs, int stages) {
    std::vector<int> result;
    for (const BlockRange& range : stage_plan(static_cast<int>(costs.blocks.size()), stages, costs))
      result.push_back(range.count);
    return result;
  };
  CHECK(counts({.blocks = {1, 1, 1, 1, 1, 5}}, 2) == std::vector{5, 1});
  CHECK(counts({.head = 4, .blocks = {1, 3, 1, 3}}, 2) == std::vector{3, 1});
  CHECK(counts({.blocks = {9, 1, 1, 1, 1}}, 3) == std::vector{1, 2, 2});  // 1, 1, 3 costs as much, but is less even
  CHECK(counts({.head = 4, .blocks = std::vector<double>(8, 1.0)}, 2) == std::vector{6, 2});  // as with block = 1
  CHECK_THROWS(stage_plan(3, 2, {.blocks = {1, 2}}));

  for (const std::vector<double>& blocks :
       {std::vector<double>{1, 3, 1, 3, 1, 3, 1}, {2, 0.5, 0.7, 4, 1}, {1, 1, 6}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}}) {
    const int layers = static_cast<int>(blocks.size());
    const StageCosts costs{.embedding = 0.3, .head = 1.5, .blocks = blocks};
    const auto worst = [&](int a, int b) {  // stages of a, b and the other blocks
      double stage[3] = {costs.embedding, 0, costs.head};
      for (int i = 0; i < layers; ++i) stage[i < a ? 0 : i < a + b ? 1 : 2] += blocks[static_cast<std::size_t>(i)];
      return std::max({stage[0], stage[1], stage[2]});
    };
    double best = 1e9;
    for (int a = 1; a < layers - 1; ++a) {
      for (int b = 1; a + b < layers; ++b) best = std::min(best, worst(a, b));
    }
    const std::vector<int> got = counts(costs, 3);
    CHECK(got[0] + got[1] + got[2] == layers);
    CHECK(worst(got[0], got[1]) == doctest::Approx(best));
  }
}

TEST_CASE("stage plan by list, and the lists that cannot be") {
  CHECK(listed_stage_plan("3,3,2", 8, 3) == StagePlan{{0, 3}, {3, 3}, {6, 2}});
  CHECK(listed_stage_plan("5", 5, 1) == StagePlan{{0, 5}});
  const auto refused = [](const char* list, int layers, int stages) {
    return error_of([&] { listed_stage_plan(list, layers, stages); }, ExitCode::usage);
  };
  CHECK(refused("3,3,3", 8, 3).find("3 + 3 + 3 = 9 layers; the model has 8") != std::string::npos);
  CHECK(refused("4,4", 8, 4).find("names 2 stages; the pipeline has 4") != std::string::npos);
  for (const char* list : {"", "3,", ",3", "3,x", "3;3", "3 3", "0,8", "-1,9", "3,,5", "99999999999,1"})
    CHECK_MESSAGE(refused(list, 8, 2).find("is not a list of layer counts") != std::string::npos, "'", list, "'");
}
