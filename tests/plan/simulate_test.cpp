// Traces written by hand, on a machine whose figures are easy.
#include "ops/plan/simulate.h"

#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "core/error.h"

using namespace trireme;
using namespace trireme::plan;

namespace {

/// A kernel takes as many seconds as it has FLOPs; a collective 0.5 s on links, a message 0.25 s of its sender and then
/// as many seconds as it has bytes.
class Easy : public MachineModel {
 public:
  explicit Easy(int cores = 0) : cores_(cores) {}
  double kernel(const ProfileEvent& call) const override { return call.cost.flops; }
  double host(double) const override { return 0; }
  TransferTime collective(const Trace::Transfer&, const Trace::Group&) const override { return {.link = 0.5}; }
  TransferTime message(const Trace::Transfer& transfer, int) const override {
    return {.processor = 0.25, .link = static_cast<double>(transfer.bytes)};
  }
  int shared_cores() const override { return cores_; }
  int node_of(int) const override { return 0; }

 private:
  int cores_;
};

void compute(Trace& trace, double seconds) {
  trace.kernel([=] { return ProfileEvent{.category = "kernel", .name = "gemm", .cost = {.flops = seconds}}; }, [] {});
}

/// Both ranks of a group "tp".
struct Two {
  std::vector<Trace> traces = std::vector<Trace>(2);
  Two() {
    for (Trace& trace : traces) trace.add_group("tp[pp=0]", {0, 1});
  }
  Trace& operator[](int rank) { return traces[static_cast<std::size_t>(rank)]; }
  std::vector<RankTime> run(const MachineModel& machine = Easy()) {
    return simulate({{.rank = 0, .trace = &traces[0]}, {.rank = 1, .trace = &traces[1]}}, machine);
  }
};

}  // namespace

TEST_CASE("a collective begins when the last rank has come") {
  Two ranks;
  for (int rank : {0, 1}) {
    compute(ranks[rank], rank + 1);
    const int sum = ranks[rank].start({});
    ranks[rank].wait(sum);
    compute(ranks[rank], 1);
    ranks[rank].mark();
  }
  const std::vector<RankTime> times = ranks.run();
  CHECK(times[0].step == 3.5);
  CHECK(times[1].step == 3.5);
  CHECK(step_seconds(times) == 3.5);
}

TEST_CASE("a collective in the background is hidden behind kernels; the last step is reported") {
  Two ranks;
  for (int step : {0, 1})
    for (int rank : {0, 1}) {
      const int sum = ranks[rank].start({.background = true});
      compute(ranks[rank], step == 0 ? 5 : 0.25);
      ranks[rank].wait(sum);
      ranks[rank].mark();
    }
  const std::vector<RankTime> times = ranks.run();
  CHECK(times[0].step == 0.5);
  CHECK(times[0].kernels.at("gemm") == 0.25);
  CHECK(times[0].exchanges.at("tp[pp=0]") == 0.25);
}

TEST_CASE("the slowest of many devices sets the pace; a rank waits for the slowest of many calls") {
  CHECK(expected_largest(1) == 0);
  CHECK(expected_largest(2) == doctest::Approx(0.5642).epsilon(0.05));     // 1 / sqrt(pi)
  CHECK(expected_largest(1000) == doctest::Approx(3.2414).epsilon(0.01));  // by numerical integration
  struct Varied final : Easy {
    explicit Varied(Variation v) : varied(v) {}
    Variation variation() const override { return varied; }
    Variation varied;
  };
  constexpr int members = 1000, sums = 200;
  Trace trace;
  std::vector<int> ranks(members);
  std::iota(ranks.begin(), ranks.end(), 0);
  trace.add_group("dp", ranks);
  for (int i = 0; i < sums; ++i) {
    compute(trace, 1);
    trace.wait(trace.start({}));
  }
  trace.mark();
  const auto step = [&](Variation variation) {
    return simulate({{.rank = 0, .trace = &trace, .like_it = members}}, Varied(variation)).front().step;
  };
  CHECK(step({}) == sums * 1.5);
  CHECK(step({.devices = 0.01}) == doctest::Approx(sums * (1.5 + 0.01 * 3.24)).epsilon(1e-3));
  CHECK(step({.calls = 0.1}) == doctest::Approx(sums * (1.5 + 0.1 * 3.24)).epsilon(0.01));
}

TEST_CASE("the collectives of a communication thread come one after the other") {
  Two ranks;
  for (int rank : {0, 1}) {
    const int first = ranks[rank].start({.background = true}), second = ranks[rank].start({.background = true});
    ranks[rank].wait(second);
    ranks[rank].wait(first);
    ranks[rank].mark();
  }
  CHECK(ranks.run()[0].step == 1);
}

TEST_CASE("a receiver waits until the message has arrived, and messages keep their order") {
  using Kind = Trace::TransferKind;
  Two ranks;
  compute(ranks[0], 1);
  ranks[0].start({.kind = Kind::send, .peer = 1, .bytes = 4});
  ranks[0].start({.kind = Kind::send, .peer = 1, .bytes = 1});
  ranks[0].mark();
  for (int i = 0; i < 2; ++i) {
    const int message = ranks[1].start({.kind = Kind::receive, .peer = 0});
    ranks[1].wait(message);
    compute(ranks[1], 1);
  }
  ranks[1].mark();
  const std::vector<RankTime> times = ranks.run();
  CHECK(times[0].step == 1.5);  // a sender does not wait for its receiver
  CHECK(times[1].step == 5.25 + 2);
}

/// Easy, where a rank that slept needs 0.125 s to go on.
class Sleepy final : public Easy {
 public:
  double wake() const override { return 0.125; }
};

TEST_CASE("a rank that waited long has to wake before it goes on; one that spins does not") {
  using Kind = Trace::TransferKind;
  for (const double wait : {1.0, 1e-5}) {
    CAPTURE(wait);
    const double wakes = wait == 1 ? 0.125 : 0;
    Two sum, message;
    for (int rank : {0, 1}) {
      compute(sum[rank], rank == 0 ? 1 : 1 + wait);
      sum[rank].wait(sum[rank].start({}));
      sum[rank].mark();
    }
    CHECK(sum.run(Sleepy())[1].step == doctest::Approx(1 + wait + wakes + 0.5));  // a sum is over for all at once
    compute(message[0], wait);
    message[0].start({.kind = Kind::send, .peer = 1, .bytes = 0});
    message[0].mark();
    compute(message[1], 0.25);
    message[1].wait(message[1].start({.kind = Kind::receive, .peer = 0}));
    message[1].mark();
    CHECK(message.run(Sleepy())[1].step == doctest::Approx(wait + 0.25 + wakes));
  }
}

TEST_CASE("ranks that share a core take turns") {
  Two ranks;
  for (int rank : {0, 1}) {
    compute(ranks[rank], 1);
    ranks[rank].mark();
  }
  CHECK(step_seconds(ranks.run(Easy(1))) == 2);
  CHECK(step_seconds(ranks.run(Easy(2))) == 1);
}

TEST_CASE("ranks that are not simulated do what the others do") {
  Trace trace;
  trace.add_group("data[tp=0]", {0, 1, 2, 3});
  compute(trace, 1);
  const int sum = trace.start({});
  trace.wait(sum);
  trace.start({.kind = Trace::TransferKind::send, .peer = 1, .bytes = 2});
  const int message = trace.start({.kind = Trace::TransferKind::receive, .peer = 3});
  trace.wait(message);
  trace.mark();
  CHECK(simulate({{.rank = 0, .trace = &trace}}, Easy())[0].step == 1 + 0.5 + 0.25 + 2);
}

TEST_CASE("ranks that wait for one another are an error, which names one") {
  Two ranks;
  const int message = ranks[0].start({.kind = Trace::TransferKind::receive, .peer = 1});
  ranks[0].wait(message);
  CHECK_THROWS_WITH_AS(ranks.run(), doctest::Contains("rank 0 waits for ever, at event 1 of 2"), Error);
}

TEST_CASE("a timeline has what each rank does when, in the last step") {
  Two ranks;
  for (int step : {0, 1})
    for (int rank : {0, 1}) {
      const int hidden = ranks[rank].start({.background = true});
      compute(ranks[rank], step == 0 ? 5 : rank + 1);
      ranks[rank].wait(hidden);
      const int sum = ranks[rank].start({});
      ranks[rank].wait(sum);
      ranks[rank].mark();
    }
  Timeline timeline;
  simulate({{.rank = 0, .trace = &ranks[0]}, {.rank = 1, .trace = &ranks[1]}}, Easy(), &timeline);
  CHECK(timeline.seconds == 2.5);
  REQUIRE(timeline.ranks.size() == 2);
  const auto& program = timeline.ranks[0].program;  // a kernel, and the wait for the slower rank
  REQUIRE(program.size() == 2);
  CHECK(program[0].end == 1);
  CHECK(program[1].begin == 1);
  CHECK(program[1].end == 2.5);
  CHECK(ranks[0].events()[program[1].index].kind == Trace::EventKind::wait);
  REQUIRE(timeline.ranks[1].background.size() == 1);
  CHECK(timeline.ranks[1].background[0].begin == 0);
  CHECK(timeline.ranks[1].background[0].end == 0.5);
}

namespace {

/// A collective and a message take 2 s of the port each, and a message 1 s before.
class Ports final : public MachineModel {
 public:
  double kernel(const ProfileEvent& call) const override { return call.cost.flops; }
  double host(double) const override { return 0; }
  TransferTime collective(const Trace::Transfer&, const Trace::Group&) const override { return {.link = 2, .busy = 2}; }
  TransferTime message(const Trace::Transfer&, int) const override {
    return {.link = 3, .busy = 2, .port = TransferTime::Port::between};
  }
  int node_of(int) const override { return 0; }
};

}  // namespace

TEST_CASE("transfers of a rank at the same time share its port") {
  Two ranks;
  for (int rank : {0, 1}) {
    const int sum = ranks[rank].start({.background = true});
    if (rank == 0) {
      ranks[0].start({.kind = Trace::TransferKind::send, .peer = 1, .bytes = 1});
    } else {
      const int message = ranks[1].start({.kind = Trace::TransferKind::receive, .peer = 0});
      ranks[1].wait(message);
    }
    ranks[rank].wait(sum);
    ranks[rank].mark();
  }
  // Rank 0: the sum alone for 1 s, half of it; together with the message until 3 s; the message alone until 4 s.
  const std::vector<RankTime> times = ranks.run(Ports());
  CHECK(times[0].step == 3);
  CHECK(times[1].step == 4);
}
