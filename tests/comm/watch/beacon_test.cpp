// A rank's page: what it shows, the ring of its last operations, and the flight record that is made of all pages.
#include "parallel/comm/watch/beacon.h"

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "parallel/comm/call_site.h"
#include "parallel/comm/watch/report.h"
#include "parallel/comm/watch/vital_signs.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::watch;
using testing::says;

namespace {

Record all_reduce(std::uint64_t sequence, std::int64_t count, std::string_view site) {
  Record record;
  record.sequence = sequence;
  record.signature = {comm::CollectiveKind::all_reduce, ReduceOp::sum, DType::f32, 0, count};
  record.group = FixedText<40>("dp[tp=0,pp=0]");
  record.site = FixedText<40>(site);
  return record;
}

/// Runs `body` as that rank.
void as_rank(const std::shared_ptr<RankPages>& pages, int rank, const std::function<void(Beacon&)>& body) {
  std::thread([&] {
    const auto beacon = std::make_shared<Beacon>(pages, rank);
    Beacon::set_current(beacon);
    body(*beacon);
  }).join();
}

}  // namespace

TEST_CASE("what is written under a sequence lock is read whole or not at all") {
  struct Value {
    std::array<std::uint64_t, 9> numbers;
  };
  SeqLocked<Value> shared;
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 20000; ++i) {
      Value value;
      value.numbers.fill(i);
      shared.write(value);
    }
    over = true;
  });
  std::uint64_t last = 0, torn = 0, backwards = 0;
  while (!over) {
    const auto value = shared.read();
    if (!value) continue;
    for (const std::uint64_t number : value->numbers) torn += number != value->numbers[0] ? 1 : 0;
    backwards += value->numbers[0] < last ? 1 : 0;
    last = value->numbers[0];
  }
  writer.join();
  CHECK(torn == 0);
  CHECK(backwards == 0);
  CHECK(shared.read()->numbers[8] == 20000);
}

TEST_CASE("what was never written is nothing, not zeros") {
  CHECK_FALSE(SeqLocked<StepTimes>().read().has_value());
  CHECK_FALSE(RankPage().site.read().has_value());
  CHECK(RankPages(1).place(0) == "rank 0");
}

TEST_CASE("a text too long loses its end") {
  CHECK(FixedText<8>("abc").view() == "abc");
  CHECK(FixedText<8>("abcdefghij").view() == "abcdefg");
}

TEST_CASE("ranks that are waited for are shown, those beyond the list as more") {
  Waiting waiting;
  for (const int rank : {0, 63, 64, 511}) waiting.add(rank);
  CHECK(waiting.list() == std::vector{0, 63, 64, 511});
  CHECK_FALSE(waiting.more);
  waiting.add(512);
  CHECK(waiting.more);
}

TEST_CASE("the ring keeps the last 200 operations, in order") {
  const auto pages = std::make_shared<RankPages>(1);
  as_rank(pages, 0, [](Beacon&) {
    for (std::uint64_t i = 1; i <= 450; ++i) const Recording record(all_reduce(i, 64, "here"));
  });
  const std::vector<Record> history = pages->page(0).history();
  REQUIRE(history.size() == 200);
  for (std::size_t i = 0; i < history.size(); ++i) CHECK(history[i].number == 251 + i);
  CHECK(history.back().sequence == 450);
  CHECK(history.back().ended >= history.back().begun);
  CHECK_FALSE(pages->page(0).record(250).has_value());
}

TEST_CASE("an operation that outlives 200 others does not overwrite them") {
  const auto pages = std::make_shared<RankPages>(1);
  as_rank(pages, 0, [](Beacon&) {
    const Recording slow(all_reduce(1, 64, "slow"));
    for (std::uint64_t i = 2; i <= 300; ++i) const Recording record(all_reduce(i, 64, "here"));
  });
  for (const Record& record : pages->page(0).history()) CHECK(record.site.view() == "here");
}

TEST_CASE("a rank shows its step, phase, place and call site, and beats") {
  const auto pages = std::make_shared<RankPages>(2);
  as_rank(pages, 1, [&](Beacon& beacon) {
    const RankPage& page = pages->page(1);
    CHECK(page.state == RankState::running);
    CHECK(pages->place(1) == "rank 1");
    beacon.set_place("rank 1 (dp=1,tp=0,pp=0)", 0);
    beacon.begin_step(7);
    const std::uint64_t before = page.beats;
    {
      const PhaseScope outer(Phase::forward);
      const PhaseScope inner(Phase::data);
      const CallSite site("blocks.2.mlp");
      CHECK(page.phase == static_cast<int>(Phase::data));
      CHECK(page.site.read()->view() == "blocks.2.mlp");
    }
    CHECK(page.beats > before);
    CHECK(page.phase == -1);
    CHECK(page.site.read()->view() == "the program");
    CHECK(page.step == 7);
    CHECK(pages->place(1) == "rank 1 (dp=1,tp=0,pp=0)");
  });
  CHECK(pages->page(0).state == RankState::absent);
}

TEST_CASE("times of a step leave out what was waited, and inner phases") {
  const auto pages = std::make_shared<RankPages>(1);
  const auto nap = std::chrono::milliseconds(20);
  as_rank(pages, 0, [&](Beacon& beacon) {
    beacon.begin_step(1);
    const auto start = std::chrono::steady_clock::now();
    {
      const PhaseScope outer(Phase::forward);
      {
        const PhaseScope inner(Phase::data);
        std::this_thread::sleep_for(nap);
      }
      const Blocked blocked;
      std::this_thread::sleep_for(nap);
    }
    const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    beacon.begin_step(2);
    const auto times = pages->page(0).times[1].read();
    REQUIRE(times.has_value());
    CHECK(times->step == 1);
    CHECK(times->seconds[static_cast<std::size_t>(Phase::data)] >= 0.02F);
    CHECK(times->seconds[static_cast<std::size_t>(Phase::forward)] <= static_cast<float>(all - 0.04));
  });
}

TEST_CASE("what waits for a processor is taken from the system") {
  CHECK(waited_for_processor("154915 29000 2\n") == 29000);
  for (const char* unknown : {"", "0 0 0\n", "5", "text"}) CHECK(waited_for_processor(unknown) == 0);
}

TEST_CASE("a phase is measured with the rank's own clock") {
  const auto pages = std::make_shared<RankPages>(1);
  std::thread([&] {
    static std::int64_t now = 0;
    now = 0;
    const auto beacon = std::make_shared<Beacon>(pages, 0, [] { return now; });
    Beacon::set_current(beacon);
    beacon->begin_step(1);
    {
      const PhaseScope outer(Phase::forward);
      now += 1'000'000'000;
      {
        const PhaseScope inner(Phase::data);
        now += 2'000'000'000;
      }
      const Blocked blocked;
      now += 4'000'000'000;
    }
    beacon->begin_step(2);
    Beacon::set_current(nullptr);
  }).join();
  const auto times = pages->page(0).times[1].read();
  REQUIRE(times.has_value());
  CHECK(times->seconds[static_cast<std::size_t>(Phase::forward)] == 1);
  CHECK(times->seconds[static_cast<std::size_t>(Phase::data)] == 2);
}

TEST_CASE("what a communication thread waits is neither the rank's wait nor taken from its phase") {
  const auto pages = std::make_shared<RankPages>(1);
  static std::int64_t now = 0;
  now = 0;
  std::thread([&] {
    const auto beacon = std::make_shared<Beacon>(pages, 0, [] { return now; });
    Beacon::set_current(beacon);
    beacon->begin_step(1);
    {
      const PhaseScope computes(Phase::backward);
      std::thread([&] {
        Beacon::set_current(beacon);
        const Blocked waits;
        now += 3'000'000'000;
        beacon->show_waits();
        Beacon::set_current(nullptr);
      }).join();
    }
    beacon->begin_step(2);
    Beacon::set_current(nullptr);
  }).join();
  CHECK_FALSE(pages->page(0).waiting.read()->blocked);
  const auto times = pages->page(0).times[1].read();
  REQUIRE(times.has_value());
  CHECK(times->seconds[static_cast<std::size_t>(Phase::backward)] == 3);
}

TEST_CASE("a wait is shown from the moment it lasts until it is over") {
  const auto pages = std::make_shared<RankPages>(4);
  as_rank(pages, 0, [&](Beacon& beacon) {
    const auto shown = [&] {
      beacon.show_waits();
      return *pages->page(0).waiting.read();
    };
    {
      const Recording record(all_reduce(1, 64, "here"));
      const auto missing = [] { return std::vector{2, 3}; };
      Wait wait(record, missing);
      CHECK(shown().record == 0);
      wait.lasts();
      CHECK(shown().record == record.number());
      CHECK_FALSE(shown().blocked);
      const Blocked blocked;
      CHECK(shown().blocked);
      CHECK(shown().list() == std::vector{2, 3});
    }
    CHECK(shown().record == 0);
  });
}

TEST_CASE("the flight record: a line for each rank, operations side by side, where they part") {
  RankPage pages[2];
  const auto three = std::make_shared<RankPages>(std::vector<RankPage*>{&pages[0], &pages[1], nullptr});
  for (int rank = 0; rank < 2; ++rank)
    as_rank(three, rank, [&](Beacon& beacon) {
      beacon.set_place(fmt::format("rank {} (dp={},tp=0,pp=0)", rank, rank), 0);
      beacon.begin_step(12);
      const PhaseScope phase(Phase::backward);
      { const Recording record(all_reduce(1, 64, "sums of gradients")); }
      { const Recording record(all_reduce(2, rank == 0 ? 64 : 65, "blocks.0")); }
      if (rank == 1) return;
      Record message = all_reduce(0, 7, "blocks.0");
      message.what = Record::What::recv;
      message.peer = 1;
      message.tag = 3;
      const Recording record(message);
      const auto missing = [] { return std::vector{1}; };
      Wait wait(record, missing);
      wait.lasts();
      const Blocked blocked;
      beacon.show_waits();
    });
  const std::string text = flight_record(*three, {1});
  CHECK(says(text, "\nrank 0 (dp=0,tp=0,pp=0): waits for rank 1, since "));
  CHECK(says(text, "\nLOST rank 1 (dp=1,tp=0,pp=0): works; step 12"));
  CHECK(says(text, "rank 2: on another node, cannot be seen from here"));
  CHECK(says(text, "group 'dp[tp=0,pp=0]', newest first, ranks 0 1\n#2\n    rank 0    all_reduce(sum of 64 f32)"));
  CHECK(says(text, "    rank 1    all_reduce(sum of 65 f32)"));
  CHECK(says(text, "#1 step 12 all_reduce(sum of 64 f32) in backward sums of gradients, ms:"));
  CHECK(says(text, "recv(7 f32, tag 3) from rank 1 in group 'dp[tp=0,pp=0]'"));
}

TEST_CASE("the flight record of ranks that have not come to a step") {
  const auto pages = std::make_shared<RankPages>(2);
  for (int rank = 0; rank < 2; ++rank)
    as_rank(pages, rank, [&](Beacon&) {
      { const Recording record(all_reduce(1, 64, "setup")); }
      if (rank == 0) const Recording record(all_reduce(2, 64, "setup"));
    });
  const std::string text = flight_record(*pages);
  CHECK(says(text, "\nrank 0: works; before the first step, at the program; its last operation is "));
  CHECK(says(text, "\n#1 before the first step all_reduce(sum of 64 f32) in no phase setup, ms:"));
  CHECK(says(text, "\n    rank 0    all_reduce(sum of 64 f32) before the first step, "));
  CHECK(text.find("step -1") == std::string::npos);
}

TEST_CASE("a lost rank's message says what it waited for, whatever its page shows by then") {
  const auto pages = std::make_shared<RankPages>(2);
  as_rank(pages, 0, [&](Beacon& beacon) {
    Observer observer(pages, [](const ThreadId&) { return VitalSigns{.state = 'S'}; });
    const auto said = [&](WaitFault fault, std::vector<int> ranks) {
      return std::string(lost_rank({{fault, std::move(ranks)}, 0, 30}, *pages, observer).what());
    };
    const CallSite site("blocks.2.mlp");
    {
      const Blocked blocked;
      beacon.show_waits();
      observer.look(0.05);
    }
    CHECK(says(said(WaitFault::stalled, {0}),
               "[watch] rank 0 at blocks.2.mlp waits for a thread of its own; all are there, but for 120 s"));
    CHECK(
        says(said(WaitFault::stopped, {0}), "it was at blocks.2.mlp; it has begun no operation; nobody waits for it"));
    {
      const Recording record(all_reduce(1, 64, "here"));
      const auto missing = [] { return std::vector{1}; };
      Wait wait(record, missing);
      wait.lasts();
      const Blocked blocked;
      beacon.show_waits();
      observer.look(0.05);
      CHECK(says(said(WaitFault::unseen, {1}), "[watch] rank 0 in all_reduce(sum of 64 f32) #1 of group "));
    }
    beacon.show_waits();  // the wait was over just before the message was made
    CHECK(says(said(WaitFault::unseen, {1}), "[watch] rank 0 at blocks.2.mlp waits for rank 1, for 120 s"));
    CHECK(says(said(WaitFault::deadlocked, {0, 1}),
               "for 30 s: rank 0 at blocks.2.mlp waits for rank 1; every rank must"));
  });
}
