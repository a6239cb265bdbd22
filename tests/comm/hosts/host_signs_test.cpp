// What follows from the signs of other hosts, from invented signs.
#include "parallel/comm/hosts/host_signs.h"

#include <doctest/doctest.h>

#include <random>

using namespace trireme;
using namespace trireme::hosts;

namespace {

const std::vector<Host> three = {{"h1", {0, 3}}, {"h2", {1, 4}}, {"h3", {2, 5}}};

RankNews news_of(int rank, float silence, bool waits) {
  RankNews news;
  news.rank = rank;
  news.step = 12;
  news.silence = silence;
  news.waits = waits ? 1 : 0;
  news.place = watch::FixedText<64>(fmt::format("rank {} (dp={})", rank, rank));
  news.doing = watch::FixedText<240>("in forward at blocks.1.mlp; it has begun no operation");
  return news;
}

std::vector<HostSigns> all_well() {
  std::vector<HostSigns> signs(3);
  for (std::size_t host = 1; host < 3; ++host) {
    signs[host].linked = true;
    for (const int rank : three[host].ranks) signs[host].ranks[rank] = news_of(rank, 0.1F, false);
  }
  return signs;
}

}  // namespace

TEST_CASE("hosts that answer are never lost, nor one that has never answered") {
  std::vector<HostSigns> signs = all_well();
  CHECK(!find_lost_host(three, signs, 2, true));
  signs[2] = {.linked = false, .since_answer = 100, .since_network = 100};
  CHECK(!find_lost_host(three, signs, 2, true));
}

TEST_CASE("a host that does not answer is gone before the timeout, and named with its ranks") {
  std::vector<HostSigns> signs = all_well();
  signs[1].since_answer = 1.75, signs[1].since_network = 1.75;
  CHECK(!find_lost_host(three, signs, 2, false));
  signs[1].since_answer = 1.85, signs[1].since_network = 1.8;
  const auto finding = find_lost_host(three, signs, 2, false);
  REQUIRE(finding.has_value());
  CHECK(finding->fault == HostFault::gone);
  const watch::LostRank lost = lost_on_host(*finding, three, signs, 2, "record\n");
  CHECK(lost.code() == ExitCode::retryable);
  CHECK(lost.place() == "rank 1 (dp=1) step 12");
  const std::string what = lost.what();
  CHECK(what.find("host h2 is gone: for 1.9 s neither its ranks nor its system") != std::string::npos);
  CHECK(what.find("its ranks: rank 1 (dp=1) step 12, rank 4 (dp=4) step 12;") != std::string::npos);
  CHECK(what.find("raise the deadline (--timeout, 2 s)") != std::string::npos);
  CHECK(lost.record().starts_with("record\n"));
  CHECK(lost.record().find("rank 5 (dp=5) step 12 on h3, heard of 0.0 s ago: in forward") != std::string::npos);
}

TEST_CASE("a host whose system answers is not gone: its process is stopped, which its own watchdog may say first") {
  std::vector<HostSigns> signs = all_well();
  signs[2].since_answer = 2.9, signs[2].since_network = 0.1;
  CHECK(!find_lost_host(three, signs, 2, true));
  signs[2].since_answer = 3.1;
  const auto finding = find_lost_host(three, signs, 2, true);
  REQUIRE(finding.has_value());
  CHECK(finding->fault == HostFault::stopped);
  const std::string what = lost_on_host(*finding, three, signs, 2, "").what();
  CHECK(what.find("host h3 is there, but its process of rank 2 has not answered for 3.1 s") != std::string::npos);
}

TEST_CASE("a rank elsewhere that its own host calls silent is lost if somebody here waits") {
  std::vector<HostSigns> signs = all_well();
  signs[1].ranks[4] = news_of(4, 2.6F, false);
  CHECK(!find_lost_host(three, signs, 2, false));
  const auto finding = find_lost_host(three, signs, 2, true);
  REQUIRE(finding.has_value());
  CHECK(finding->fault == HostFault::hung);
  const watch::LostRank lost = lost_on_host(*finding, three, signs, 2, "");
  CHECK(lost.place() == "rank 4 (dp=4) step 12");
  CHECK(
      std::string(lost.what()).find("no sign of life for 2.6 s, says its host h2; it was in forward at blocks.1.mlp") !=
      std::string::npos);
  signs[1].ranks[4] = news_of(4, 2.6F, true);  // a rank that waits for others is silent too
  CHECK(!find_lost_host(three, signs, 2, true));
}

TEST_CASE("a link with long round trips is named once, in 3 windows, and one that is slow for a moment is not") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0, 0.05);  // a busy processor
  SlowLinks links(4);
  int named = 0, at = 0;
  for (int round = 1; round <= 200; ++round) {
    for (int host = 1; host <= 3; ++host) {
      // Every 4th answer comes at once. Host 1 has one bad window; host 3 is slow from the start.
      const double wait = round % 4 == 0 ? 0 : noise(random);
      const bool bad = host == 3 || (host == 1 && round > 32 && round <= 40);
      links.add(host, wait + (bad ? 0.04 : 0.001));
    }
    for (const SlowLinks::Slow& slow : links.look()) {
      ++named;
      at = round;
      CHECK(slow.host == 3);
      CHECK(slow.seconds == doctest::Approx(0.04));
      CHECK(slow.median == doctest::Approx(0.001));
    }
  }
  CHECK(named == 1);
  CHECK(at == SlowLinks::window * SlowLinks::windows);
}

TEST_CASE("without another link to compare with, no link is slow; nor are links that are equally slow") {
  SlowLinks two(2), three_hosts(3);
  for (int round = 0; round < 100; ++round) {
    two.add(1, 1.0);
    CHECK(two.look().empty());
    three_hosts.add(1, 0.100);
    three_hosts.add(2, 0.101);
    CHECK(three_hosts.look().empty());
  }
}

TEST_CASE("a slow link's message names the host, its ranks and both times") {
  const std::string text = to_string(SlowLinks::Slow{1, 0.0412, 0.0011}, three, all_well());
  CHECK(text ==
        "a round trip from host h1 to host h2 takes 41.2 ms, to the other hosts 1.1 ms; its ranks, for which all wait: "
        "rank 1 (dp=1) step 12, rank 4 (dp=4) step 12; look at its network");
}
