// Which rank is slower than the others that do the same work, from invented times.
#include "parallel/comm/watch/straggler.h"

#include <doctest/doctest.h>

#include <random>

using namespace trireme;
using namespace trireme::watch;

namespace {

PhaseSeconds step_of(double forward, double backward) {
  PhaseSeconds seconds{};
  seconds[static_cast<std::size_t>(Phase::forward)] = forward;
  seconds[static_cast<std::size_t>(Phase::backward)] = backward;
  return seconds;
}

}  // namespace

TEST_CASE("a rank twice as slow is named once, within 18 steps, with its phase and ratio") {
  StragglerDetector detector;
  int named = 0;
  std::int64_t at = 0;
  for (std::int64_t step = 1; step <= 400; ++step) {
    std::vector<PhaseSeconds> ranks(4, step_of(0.02, 0.04));
    if (step > 101) ranks[3] = step_of(0.02, 0.084);
    for (const Straggler& found : detector.add(step, ranks, {0, 0, 0, 0})) {
      ++named;
      at = step;
      CHECK(found.rank == 3);
      CHECK(found.phase == Phase::backward);
      CHECK(found.ratio() == doctest::Approx(2.1));
      CHECK(
          to_string(found, "rank 3 (dp=1,tp=1)")
              .starts_with("rank 3 (dp=1,tp=1) takes 2.1x the median of its 3 peers in backward: 84.0 ms against 40.0 "
                           "ms a step, in steps "));
    }
  }
  CHECK(named == 1);
  CHECK(at > 101);
  CHECK(at <= 101 + 18);
}

TEST_CASE("of two ranks the slower is named") {
  StragglerDetector detector;
  std::vector<Straggler> all;
  for (std::int64_t step = 1; step <= 16; ++step)
    for (const Straggler& one : detector.add(step, {step_of(0.05, 0.04), step_of(0.02, 0.04)}, {0, 0}))
      all.push_back(one);
  REQUIRE(all.size() == 1);
  CHECK(all.front().rank == 0);
  CHECK(all.front().phase == Phase::forward);
}

TEST_CASE("stages of a pipeline differ by design and are not compared") {
  StragglerDetector detector;
  for (std::int64_t step = 1; step <= 100; ++step)
    CHECK(detector.add(step, {step_of(0.1, 0.2), step_of(0.02, 0.04)}, {0, 1}).empty());
}

TEST_CASE("ranks that cannot be seen are compared with nobody") {
  StragglerDetector detector;
  for (std::int64_t step = 1; step <= 100; ++step)
    CHECK(detector.add(step, {step_of(0.1, 0.2), step_of(0, 0)}, {0, -1}).empty());
}

TEST_CASE("a phase that hardly matters is not worth a word") {
  StragglerDetector detector;
  for (std::int64_t step = 1; step <= 100; ++step)
    CHECK(detector.add(step, {step_of(0.003, 0.2), step_of(0.001, 0.2)}, {0, 0}).empty());
}

TEST_CASE("a noisy machine gives no false alarm: every step of any rank may take up to three times as long") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(0, 1);
  for (const std::size_t count : {2, 4, 8}) {
    StragglerDetector detector;
    const std::vector<int> work(count, 0);
    for (std::int64_t step = 1; step <= 10000; ++step) {
      std::vector<PhaseSeconds> ranks;
      for (std::size_t rank = 0; rank < count; ++rank) {
        const double preempted = part(random) < 0.25 ? 1 + 2 * part(random) : 1;
        const double jitter = 0.9 + 0.2 * part(random);
        ranks.push_back(step_of(0.02 * jitter * preempted, 0.04 * jitter * preempted));
      }
      CHECK(detector.add(step, ranks, work).empty());
    }
  }
}

TEST_CASE("a rank that is slow for ten steps has had a bad moment") {
  StragglerDetector detector;
  for (std::int64_t step = 1; step <= 200; ++step) {
    const bool slow = step % 24 < 10;
    CHECK(detector.add(step, {step_of(0.02, slow ? 0.4 : 0.04), step_of(0.02, 0.04), step_of(0.02, 0.04)}, {0, 0, 0})
              .empty());
  }
}

TEST_CASE("a page that was never written is not at step 0") {
  const auto pages = std::make_shared<RankPages>(2);
  StragglerWatch watch(pages);
  CHECK(watch.look().empty());
  std::vector<std::string> lines;
  for (std::int64_t step = 1; step <= 20; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      if (rank == 1 && step == 1) CHECK(watch.look().empty());  // one has a step, the other none yet
      StepTimes times{step, {}};
      times.seconds[static_cast<std::size_t>(Phase::forward)] = rank == 1 ? 0.09F : 0.03F;
      pages->page(rank).times[static_cast<std::size_t>(step) % RankPage::steps].write(times);
    }
    for (const std::string& line : watch.look()) lines.push_back(line);
  }
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().find(", in steps 1 to 16;") != std::string::npos);
}

TEST_CASE("the times on the ranks' pages are read as they appear, once each") {
  const auto pages = std::make_shared<RankPages>(2);
  StragglerWatch watch(pages);
  int lines = 0;
  for (std::int64_t step = 1; step <= 40; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      StepTimes times{step, {}};
      times.seconds[static_cast<std::size_t>(Phase::forward)] = rank == 1 ? 0.09F : 0.03F;
      pages->page(rank).times[static_cast<std::size_t>(step) % RankPage::steps].write(times);
    }
    for (const std::string& line : watch.look()) {
      ++lines;
      CHECK(line.starts_with("rank 1 takes 3.0x the time of its peer in forward: 90.0 ms against 30.0 ms a step"));
      CHECK(step <= 16);
    }
  }
  CHECK(lines == 1);
}
