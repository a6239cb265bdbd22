// Lab 9: wrong answers, each with a part of the message that it must get. Most accuse somebody plausible; the last
// three try to fool the grader. tests/labs runs them. Do not read this before your own answer: what is wrong shows what
// is right.
#include <map>
#include <optional>

#include "examples/labs/09_diagnosis/solution.h"

namespace trireme::labs::diagnosis {
namespace {

using solution::shortest_round_trip;
using solution::typical_seconds;
using solution::under_way;

template <class Function>
Answer wrong(std::string name, Function Answers::*member, Function function, std::string expected) {
  Answers answers = solution::answers;
  answers.*member = function;
  return answer(std::move(name), answers, std::move(expected));
}
Answer wrong_lag(std::string name, Lag (*find)(const Times&), std::string expected) {
  return wrong(std::move(name), &Answers::find_lag, find, std::move(expected));
}
Answer wrong_hang(std::string name, Hang (*find)(const FlightRecord&), std::string expected) {
  return wrong(std::move(name), &Answers::find_hang, find, std::move(expected));
}
Answer wrong_lost(std::string name, Loss (*find)(const FlightRecord&, double), std::string expected) {
  return wrong(std::move(name), &Answers::find_lost, find, std::move(expected));
}
Answer wrong_flip(std::string name, Flip (*find)(const HashRecord&), std::string expected) {
  return wrong(std::move(name), &Answers::find_flip, find, std::move(expected));
}

// ---- predictions ----------------------------------------------------------------------------------------------------

const Registered a(wrong(
    "a slow rank of n costs 1/n", &Answers::step_seconds,
    +[](int ranks, double compute, double factor, double all_reduce) {
      return (ranks - 1 + factor) / ranks * compute + all_reduce;
    },
    "prediction: seconds of a step with a slow rank"));
const Registered b(wrong(
    "compares all steps", &Answers::comparisons, +[](int steps) { return steps - 1; }, "steps: predicted"));
const Registered c(wrong(
    "only the steps after the flip are lost", &Answers::seconds_lost,
    +[](int flip, int check_every, int, double step, double restart) {
      const int found = (flip + check_every - 1) / check_every * check_every;
      return (found - flip) * step + restart;
    },
    "prediction: seconds lost by a bit flip"));

// ---- a rank or a link that is slow ----------------------------------------------------------------------------------

/// The rank whose sum of `member` is the largest.
Lag largest(const Times& times, double StepTimes::*member) {
  std::map<int, double> sums;
  for (const StepTimes& step : times.steps) sums[step.rank] += step.*member;
  const auto less = [](const auto& x, const auto& y) { return x.second < y.second; };
  return {Lag::Cause::rank, std::ranges::max_element(sums, less)->first};
}
const Registered d(wrong_lag(
    "the longest step", [](const Times& times) { return largest(times, &StepTimes::whole); },
    "in every step; you accuse rank"));
const Registered e(wrong_lag(
    "waits longest", [](const Times& times) { return largest(times, &StepTimes::waiting); },
    "in every step; you accuse rank"));
const Registered f(wrong_lag(
    "somebody is always the slowest",
    [](const Times& times) {
      Lag lag{Lag::Cause::rank, 0};
      for (int rank = 0; rank < static_cast<int>(times.work.size()); ++rank)
        if (typical_seconds(times, rank) > typical_seconds(times, lag.rank)) lag.rank = rank;
      return lag;
    },
    "no rank and no link is slow"));
const Registered g(wrong_lag(
    "compared with other stages",
    [](const Times& times) {
      Times all = times;
      std::ranges::fill(all.work, 0);
      return solution::find_lag(all);
    },
    "no rank and no link is slow"));
const Registered h(wrong_lag(
    "the mean, with its accidents",
    [](const Times& times) {
      Times means = times;
      for (StepTimes& step : means.steps) {
        double sum = 0, count = 0;
        for (const StepTimes& other : times.steps) {
          sum += other.rank == step.rank ? other.computing : 0;
          count += other.rank == step.rank ? 1 : 0;
        }
        step.computing = sum / count;
      }
      return solution::find_lag(means);
    },
    "and are late in a step or two; you accuse rank"));
const Registered i(wrong_lag(
    "the longest round trip",
    [](const Times& times) {
      const Lag lag = solution::find_lag(times);
      if (lag.cause != Lag::Cause::link) return lag;
      const auto less = [](const RoundTrip& x, const RoundTrip& y) { return x.seconds < y.seconds; };
      const RoundTrip& trip = *std::ranges::max_element(times.round_trips, less);
      return Lag{Lag::Cause::link, trip.from, trip.to};
    },
    "the others; you accuse the link between"));
const Registered j(wrong_lag(
    "links first, all alike",
    [](const Times& times) {
      const int ranks = static_cast<int>(times.work.size());
      std::vector<double> all;
      for (int x = 0; x < ranks; ++x)
        for (int y = x + 1; y < ranks; ++y) all.push_back(shortest_round_trip(times, x, y));
      for (int x = 0; x < ranks; ++x)
        for (int y = x + 1; y < ranks; ++y)
          if (shortest_round_trip(times, x, y) > 3 * median(all)) return Lag{Lag::Cause::link, x, y};
      return solution::find_lag(times);
    },
    "in every step; you accuse the link"));

// ---- ranks that wait ------------------------------------------------------------------------------------------------

/// With the solution's kind and operation.
Hang accuse(const FlightRecord& record, int rank) {
  Hang hang = solution::find_hang(record);
  hang.rank = rank;
  return hang;
}
const Registered k(wrong_hang(
    "the first that waits",
    [](const FlightRecord& record) {
      int rank = 0;
      while (under_way(record, rank) == nullptr) ++rank;
      return accuse(record, rank);
    },
    "one rank has stopped; you accuse rank"));
const Registered l(wrong_hang(
    "the smallest number, of whatever group",
    [](const FlightRecord& record) {
      int rank = 0;
      const auto number = [&](int r) { return record.page(r).operations.back().sequence; };
      for (int r = 0; r < record.size(); ++r)
        if (number(r) < number(rank)) rank = r;
      return accuse(record, rank);
    },
    "one rank has stopped; you accuse"));
const Registered m(wrong_hang(
    "who differs from the first of its group",
    [](const FlightRecord& record) {
      const Hang hang = solution::find_hang(record);
      const auto& ranks = record.group(hang.group).ranks;
      if (hang.kind == Hang::Kind::missing || hang.rank != ranks[0]) return hang;
      return accuse(record, ranks[1]);
    },
    "than its group; you accuse"));
const Registered n(wrong_hang(
    "ranks without looking at what they call",
    [](const FlightRecord& record) {
      int rank = 0;
      for (int r = 0; r < record.size(); ++r)
        if (record.page(r).operations.size() < record.page(rank).operations.size() || under_way(record, r) == nullptr)
          rank = r;
      return accuse(record, rank);
    },
    "calls another operation than its group; you accuse"));
const Registered o(wrong_hang(
    "another count is another operation",
    [](const FlightRecord& record) {
      Hang hang = solution::find_hang(record);
      if (hang.kind == Hang::Kind::other_count) hang.kind = Hang::Kind::other_operation;
      return hang;
    },
    "and call that 'other_operation'"));
const Registered p(wrong(
    "waits for its whole group", &Answers::waits_for,
    +[](const FlightRecord& record, int rank) {
      const Operation* operation = under_way(record, rank);
      if (operation == nullptr || operation->peer >= 0) return solution::waits_for(record, rank);
      return record.group(operation->group).ranks;
    },
    "you say that it waits for ranks"));

// ---- a rank without a sign of life ----------------------------------------------------------------------------------

const Registered q(wrong_lost(
    "the longest silence",
    [](const FlightRecord& record, double timeout) {
      Loss loss = solution::find_lost(record, timeout);
      for (int rank = 0; rank < record.size() && loss.rank >= 0; ++rank)
        if (record.page(rank).since_heartbeat > record.page(loss.rank).since_heartbeat) loss.rank = rank;
      return loss;
    },
    "s; you accuse rank"));
const Registered r(wrong_lost(
    "the first without a heartbeat",
    [](const FlightRecord& record, double timeout) {
      Loss loss = solution::find_lost(record, timeout);
      loss.rank = 0;
      while (loss.rank + 1 < record.size() && record.page(loss.rank).since_heartbeat < timeout) ++loss.rank;
      return loss;
    },
    "s; you accuse rank"));
const Registered s(wrong_lost(
    "whoever does not wait is lost", [](const FlightRecord& record, double) { return solution::find_lost(record, 0); },
    "every rank is alive"));
const Registered t(wrong_lost(
    "all that wait, wait for it",
    [](const FlightRecord& record, double timeout) {
      Loss loss = solution::find_lost(record, timeout);
      loss.waiting.clear();
      for (int rank = 0; rank < record.size(); ++rank)
        if (under_way(record, rank) != nullptr) loss.waiting.push_back(rank);
      return loss;
    },
    "itself is waited for by"));

// ---- a bit flip -----------------------------------------------------------------------------------------------------

/// The ranks whose copy is not that of the first.
std::vector<int> unlike_first(const HashRecord& record, const CopyHashes& copies) {
  std::vector<int> ranks;
  for (std::size_t x = 0; x < copies.hashes.size(); ++x)
    if (copies.hashes[x] != copies.hashes[0]) ranks.push_back(record.ranks[x]);
  return ranks;
}
const Registered u(wrong_flip(
    "a majority of two",
    [](const HashRecord& record) {
      Flip flip = solution::find_flip(record);
      if (flip.ranks.size() == 2) flip.ranks.pop_back();
      return flip;
    },
    "What tells that the other is right?"));
const Registered v(wrong_flip(
    "rank by place in the list",
    [](const HashRecord& record) {
      Flip flip = solution::find_flip(record);
      for (int& rank : flip.ranks)
        rank = static_cast<int>(std::ranges::find(record.ranks, rank) - record.ranks.begin());
      return flip;
    },
    "the copies are on"));
const Registered w(wrong_flip(
    "the first copy is right",
    [](const HashRecord& record) {
      for (const HashCheck& check : record.checks)
        for (const CopyHashes& copies : check.tensors)
          if (const auto ranks = unlike_first(record, copies); !ranks.empty())
            return Flip{check.step, copies.tensor, ranks};
      return Flip{};
    },
    "whose copy in step"));
const Registered x(wrong_flip(
    "the last step that differs",
    [](const HashRecord& record) {
      HashRecord rest = record;
      Flip last;
      while (!rest.checks.empty()) {
        const Flip flip = solution::find_flip(rest);
        if (flip.step < 0) break;
        last = flip;
        std::erase_if(rest.checks, [&](const HashCheck& check) { return check.step <= flip.step; });
      }
      return last;
    },
    "copies have differed since before that"));
const Registered y(wrong_flip(
    "the first tensor that ever differs",
    [](const HashRecord& record) {
      Flip flip = solution::find_flip(record);
      for (const HashCheck& check : record.checks)
        for (const CopyHashes& copies : check.tensors)
          if (copies.tensor < flip.tensor && !unlike_first(record, copies).empty()) flip.tensor = copies.tensor;
      return flip;
    },
    "all copies of it are equal there"));

// ---- attempts at cheating -------------------------------------------------------------------------------------------

const Registered z(wrong_lost(
    "cheat: always the same",
    [](const FlightRecord&, double) {
      return Loss{1, "forward", {0}};
    },
    "one rank has died"));
const Registered cheat_remembers(wrong_flip(
    "cheat: remembers the first",
    [](const HashRecord& record) {
      static std::optional<Flip> first;
      if (!first) first = solution::find_flip(record);
      return *first;
    },
    "you name"));
const Registered cheat_everybody(wrong_flip(
    "cheat: accuses everybody",
    [](const HashRecord& record) {
      Flip flip = solution::find_flip(record);
      if (flip.step >= 0) flip.ranks = record.ranks;
      return flip;
    },
    "you accuse rank"));

}  // namespace
}  // namespace trireme::labs::diagnosis
