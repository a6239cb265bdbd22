// Scenarios of part 1: a job in which a rank or a link may be slow, run on the ranks of the harness, and the times that
// it shows.
// Read next: grader.cpp, which plants the faults.
#pragma once

#include "core/error.h"
#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis {

/// A job, and what is wrong with it.
struct Job {
  static constexpr int steps = 9, trips = 8;

  int stages = 2, data = 4;                    // ranks: stage x data + replica
  std::vector<std::vector<double>> compute{};  // [steps][ranks] seconds
  std::vector<std::vector<double>> answer{};   // [ranks][ranks x trips] seconds in which a rank handles a message
  int slow_a = -1, slow_b = -1;                // the slow link
  double slower = 1;
  comm::Links links = equal_links(2e-6, 2e7);

  int ranks() const { return stages * data; }
  double& compute_of(int step, int rank) { return compute[at(step)][at(rank)]; }
};

namespace detail {

/// The sum over the ranks begin to begin + n - 1, as a ring of messages. What is summed is of no interest here.
inline void ring_sum(Rank& rank, int begin, int n, std::int64_t count) {
  const int place = rank.rank() - begin;
  for (int round = 0; round < 2 * (n - 1); ++round) {
    rank.send(Tensor::zeros({count / n}), begin + (place + 1) % n);
    rank.receive(begin + (place + n - 1) % n);
  }
}

/// A message over a slow link takes as long as one of many times its bytes over the others: so the record says that.
inline Timeline timed_on_links_of(const Job& job, Run run) {
  for (int rank = 0; rank < job.ranks(); ++rank)
    for (Event& event : run.ranks[at(rank)].main)
      if ((rank == job.slow_a && event.peer == job.slow_b) || (rank == job.slow_b && event.peer == job.slow_a))
        event.bytes = static_cast<std::int64_t>(job.slower * static_cast<double>(event.bytes));
  return timed(run, job.links);
}

inline std::vector<StepTimes> step_times(const Timeline& timeline) {
  std::vector<StepTimes> steps;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    int step = 0;
    for (const Span& span : timeline.ranks[rank]) {
      if (span.kind == Span::Kind::compute)
        steps.push_back({.step = step++, .rank = static_cast<int>(rank), .computing = span.end - span.begin});
      if (span.kind == Span::Kind::waits) steps.back().waiting += span.end - span.begin;
      steps.back().whole += span.end - span.begin;
    }
  }
  return steps;
}

inline std::vector<RoundTrip> round_trips(const Timeline& timeline) {
  std::vector<RoundTrip> trips;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    double asked = 0;
    int peer = -1;
    for (const Span& span : timeline.ranks[rank]) {
      if (span.kind == Span::Kind::send) {
        asked = span.begin;
        peer = span.peer;
      }
      if (span.what == "has the answer") trips.push_back({static_cast<int>(rank), peer, span.end - asked});
    }
  }
  return trips;
}

}  // namespace detail

/// Each step: a stage's own work, the sum of its gradients over its replicas, and the norm of all gradients.
inline Timeline timeline_of(const Job& job) {
  const auto body = [&](Rank& rank) {
    for (int step = 0; step < Job::steps; ++step) {
      rank.compute(job.compute[at(step)][at(rank.rank())], "forward, backward");
      detail::ring_sum(rank, rank.rank() / job.data * job.data, job.data, 16000);
      rank.all_reduce(Tensor::zeros({1}));
    }
  };
  return detail::timed_on_links_of(job, run_ranks({.ranks = job.ranks(), .collectives = true}, body));
}

/// Every two ranks, one pair after the other: the lower one asks, the other answers.
inline std::vector<RoundTrip> round_trips_of(const Job& job) {
  const auto body = [&](Rank& rank) {
    const int self = rank.rank();
    const Tensor message = Tensor::zeros({500});
    for (int peer = 0; peer < job.ranks(); ++peer) {
      for (int trip = 0; trip < Job::trips && peer != self; ++trip) {
        if (self < peer) rank.send(message, peer);
        rank.receive(peer);
        rank.compute(job.answer[at(self)][at(peer * Job::trips + trip)], self < peer ? "has the answer" : "answers");
        if (self > peer) rank.send(message, peer);
      }
    }
  };
  return detail::round_trips(detail::timed_on_links_of(job, run_ranks({.ranks = job.ranks()}, body)));
}

inline Times times_of(const Job& job, const Timeline& timeline) {
  Times times{.work = {}, .steps = detail::step_times(timeline), .round_trips = round_trips_of(job)};
  for (int rank = 0; rank < job.ranks(); ++rank) times.work.push_back(rank / job.data);
  return times;
}

/// A healthy job: one stage has more work, ranks differ by a few percent, and some rank is late in some step.
inline Job healthy_job(Grading& grading) {
  Job job{.data = grading.pick(3, 4)};
  const double more = 0.01 * grading.pick(160, 190);
  const int heavy = grading.pick(0, 1);
  job.compute.assign(Job::steps, std::vector<double>(at(job.ranks())));
  job.answer.assign(at(job.ranks()), std::vector<double>(at(job.ranks() * Job::trips)));
  for (int rank = 0; rank < job.ranks(); ++rank) {
    for (int step = 0; step < Job::steps; ++step)
      job.compute_of(step, rank) = 1e-4 * grading.pick(95, 105) * (rank / job.data == heavy ? more : 1);
    for (double& seconds : job.answer[at(rank)]) seconds = 1e-6 * grading.pick(5, 20);
    for (int peer = 0; peer < job.ranks(); ++peer)  // busy, once in eight
      job.answer[at(rank)][at(peer * Job::trips + grading.pick(0, Job::trips - 1))] += 1e-3 * grading.pick(2, 9);
  }
  for (int accident = 0; accident < 2; ++accident)
    job.compute_of(grading.pick(0, Job::steps - 1), grading.pick(0, job.ranks() - 1)) += 1e-2 * grading.pick(8, 12);
  return job;
}

// ---- what can be seen of an accused rank or link, for messages

inline double mean_of(const Times& times, int rank, double StepTimes::*member) {
  double sum = 0;
  for (const StepTimes& step : times.steps) sum += step.rank == rank ? step.*member : 0;
  return sum / Job::steps;
}

/// What can be seen of an accused rank: its typical seconds over those of its peers, and what it waits.
inline std::string of_rank(const Times& times, int rank) {
  const int ranks = static_cast<int>(times.work.size());
  if (rank < 0 || rank >= ranks) return fmt::format("rank {}, which is none of {}", rank, ranks);
  const auto typical = [&](int r) {
    std::vector<double> seconds;
    for (const StepTimes& step : times.steps)
      if (step.rank == r) seconds.push_back(step.computing);
    return median(seconds);
  };
  std::vector<double> peers, waits;
  for (int other = 0; other < ranks; ++other) {
    if (other == rank || times.work[at(other)] != times.work[at(rank)]) continue;
    peers.push_back(typical(other));
    waits.push_back(mean_of(times, other, &StepTimes::waiting));
  }
  return fmt::format(
      "rank {}: in most steps it computes {:.2f} times as long as the median of its peers; it waits {:.1f} ms a step, "
      "they {:.1f}; every rank's steps take about {:.1f}",
      rank, typical(rank) / median(peers), 1e3 * mean_of(times, rank, &StepTimes::waiting), 1e3 * median(waits),
      1e3 * mean_of(times, rank, &StepTimes::whole));
}

inline std::string of_link(const Times& times, int a, int b) {
  if (a > b) std::swap(a, b);
  const auto shortest = [&](int from, int to) {
    double seconds = 1e9;
    for (const RoundTrip& trip : times.round_trips)
      if (trip.from == from && trip.to == to) seconds = std::min(seconds, trip.seconds);
    return seconds;
  };
  const int ranks = static_cast<int>(times.work.size());
  if (a < 0 || b >= ranks || a == b) return fmt::format("the link between ranks {} and {}, which there is not", a, b);
  std::vector<double> of_a, of_b;
  for (int other = 0; other < ranks; ++other) {
    if (other == a || other == b) continue;
    of_a.push_back(shortest(std::min(a, other), std::max(a, other)));
    of_b.push_back(shortest(std::min(b, other), std::max(b, other)));
  }
  return fmt::format(
      "the link between ranks {} and {}: its shortest round trip takes {:.2f} ms, the median of the other links of "
      "rank {} {:.2f}, of rank {} {:.2f}",
      a, b, 1e3 * shortest(a, b), a, 1e3 * median(of_a), b, 1e3 * median(of_b));
}

inline std::string accused(const Times& times, const Lag& lag) {
  if (lag.cause == Lag::Cause::rank) return of_rank(times, lag.rank);
  if (lag.cause == Lag::Cause::link) return of_link(times, lag.rank, lag.peer);
  return "nobody";
}

}  // namespace trireme::labs::diagnosis
