// The grader of lab 9. Faults are planted in jobs that run on the harness's ranks (scenario_*.h), and findings compared
// with what was planted.
#include <array>
#include <functional>

#include "examples/labs/09_diagnosis/measured.h"
#include "examples/labs/09_diagnosis/scenario_hashes.h"
#include "examples/labs/09_diagnosis/scenario_records.h"
#include "examples/labs/09_diagnosis/scenario_times.h"

namespace trireme::labs::diagnosis {
namespace {

// ---- part 1 ---------------------------------------------------------------------------------------------------------

void check_slow_rank(const Answers& answers, Grading& grading) {
  int before = -1;
  for (int scenario = 0; scenario < 4; ++scenario) {
    Job job = healthy_job(grading);
    int slow = grading.pick(0, job.ranks() - 1);
    if (slow == before) slow = (slow + 1) % job.ranks();
    before = slow;
    const double factor = 0.1 * grading.pick(18, 25);
    for (int step = 0; step < Job::steps; ++step) job.compute_of(step, slow) *= factor;
    for (double& seconds : job.answer[at(slow)]) seconds += 2e-3;  // it is late with answers, too
    const Timeline timeline = timeline_of(job);
    const Times times = times_of(job, timeline);
    if (scenario == 0) grading.show(timeline, "Lab 9: one rank computes longer than its peers");
    const Lag lag = answers.find_lag(times);
    grading.expect(lag.cause == Lag::Cause::rank && lag.rank == slow,
                   "one rank does the work of its stage in {:.1f} times the time, in every step; you accuse {}", factor,
                   accused(times, lag));
  }
}

void check_nobody_slow(const Answers& answers, Grading& grading) {
  for (int scenario = 0; scenario < 2; ++scenario) {
    Job job = healthy_job(grading);
    for (int i = 0; i < 2; ++i) {  // two ranks a little slow, on one stage or on two
      const int rank = grading.pick(0, job.ranks() - 1);
      for (int step = 0; step < Job::steps; ++step) job.compute_of(step, rank) *= 1.15;
    }
    const Times times = times_of(job, timeline_of(job));
    const Lag lag = answers.find_lag(times);
    grading.expect(lag.cause == Lag::Cause::nobody,
                   "no rank and no link is slow: some ranks do more work than others, vary, and are late in a step or "
                   "two; you accuse {}",
                   accused(times, lag));
  }
}

void check_slow_link(const Answers& answers, Grading& grading) {
  int before = -1;
  for (int scenario = 0; scenario < 3; ++scenario) {
    Job job = healthy_job(grading);
    do {  // neighbours in the ring of a stage
      job.slow_a = grading.pick(0, job.ranks() - 1);
      job.slow_b = job.slow_a / job.data * job.data + (job.slow_a + 1 - job.slow_a / job.data * job.data) % job.data;
    } while (job.slow_a == before);
    before = job.slow_a;
    job.slower = grading.pick(5, 8);
    const Times times = times_of(job, timeline_of(job));
    const Lag lag = answers.find_lag(times);
    const bool right = std::minmax(lag.rank, lag.peer) == std::minmax(job.slow_a, job.slow_b);
    grading.expect(lag.cause == Lag::Cause::link && right,
                   "no rank computes longer than its peers, and one link takes {} times as long for a byte as the "
                   "others; you accuse {}",
                   job.slower, accused(times, lag));
  }
}

// ---- parts 2 and 3 --------------------------------------------------------------------------------------------------

void check_waits(const Answers& answers, Grading& grading) {
  for (int scenario = 0; scenario < 3; ++scenario) {
    const Program program = scenario % 2 == 0 ? cut_over_tp(grading) : pipeline(grading);
    const Fault fault = stop_in(program, grading.pick(0, program.mesh.ranks() - 1), grading);
    const FlightRecord record = record_of(program, fault, 30);
    if (scenario == 0) {
      std::string text = grading.picture() + "\nanother job, in which one rank has stopped; its flight record says:\n";
      for (int rank = 0; rank < record.size(); ++rank) text += page_of(record, rank) + "\n";
      grading.show(text);
    }
    for (int rank = 0; rank < record.size(); ++rank) {
      std::vector<int> got = answers.waits_for(record, rank), want = missing_for(record, rank);
      std::ranges::sort(got);
      std::ranges::sort(want);
      grading.expect(got == want, "{}; you say that it waits for {}", page_of(record, rank), list(got));
    }
  }
}

/// `fault`: what the rank does. `said`: that as a sentence.
void check_hang(const Answers& answers, Grading& grading, Fault::Kind fault, Hang::Kind kind, std::string_view said) {
  constexpr std::array<std::string_view, 3> kinds = {"missing", "other_operation", "other_count"};
  int before = -1;
  for (int scenario = 0; scenario < 3; ++scenario) {
    const Program program = cut_over_tp(grading);
    int rank = grading.pick(0, program.mesh.ranks() - 1);
    if (scenario == 1) rank = rank / program.mesh.tp * program.mesh.tp;  // the first of its group
    if (rank == before) rank = (rank + program.mesh.tp) % program.mesh.ranks();
    before = rank;
    Fault planted = stop_in(program, rank, grading);
    // In tp, every second operation is an all_gather: without one, the next is another.
    if (fault != Fault::Kind::stops) planted = {fault, rank, 2 * grading.pick(1, 4 * program.layers - 1)};
    const FlightRecord record = record_of(program, planted, 30);
    const Hang hang = answers.find_hang(record);
    grading.expect(hang.rank == rank, "{}; you accuse {}", said, page_of(record, hang.rank));
    grading.expect(hang.kind == kind, "{}; you accuse the right rank, and call that '{}'", said,
                   kinds[at(static_cast<int>(hang.kind))]);
    bool waited = false;
    for (const RankPage& page : record.ranks) {
      const Operation& last = page.operations.back();
      const bool here = !last.ended && last.group == hang.group && last.sequence == hang.sequence;
      waited = waited || (here && has(record.group(last.group).ranks, rank));
    }
    grading.expect(waited, "you name operation #{} of '{}'; no rank waits there for rank {}", hang.sequence, hang.group,
                   rank);
  }
}

void check_lost(const Answers& answers, Grading& grading) {
  int before = -1;
  for (int scenario = 0; scenario < 5; ++scenario) {
    const Program program = pipeline(grading);
    const double timeout = grading.pick(10, 40);
    int rank = grading.pick(0, program.mesh.ranks() - 1);
    if (rank == before) rank = (rank + 1) % program.mesh.ranks();
    before = rank;
    FlightRecord record = record_of(program, stop_in(program, rank, grading), 0.01 * grading.pick(101, 130) * timeout);
    if (scenario % 2 == 1) {  // another rank computes, and is waited for, too
      std::vector<int> waiting;
      for (int other = 0; other < record.size(); ++other)
        if (other != rank && !record.page(other).operations.back().ended) waiting.push_back(other);
      still_computes(record, waiting[at(grading.pick(0, static_cast<int>(waiting.size()) - 1))], grading);
    }
    std::vector<int> want;
    for (int other = 0; other < record.size(); ++other)
      if (has(missing_for(record, other), rank)) want.push_back(other);
    const Loss loss = answers.find_lost(record, timeout);
    grading.expect(loss.rank >= 0, "one rank has died, with a timeout of {} s; you say that none is lost", timeout);
    grading.expect(loss.rank == rank, "one rank has died, with a timeout of {} s; you accuse {}", timeout,
                   page_of(record, loss.rank));
    grading.expect(loss.phase == record.page(rank).phase, "{}; you say that it was in '{}'", page_of(record, rank),
                   loss.phase);
    for (const int other : loss.waiting)
      grading.expect(has(want, other), "you say that rank {} itself is waited for by {}; that one waits for {}", rank,
                     page_of(record, other),
                     other < 0 || other >= record.size() ? "nobody" : list(missing_for(record, other)));
    for (const int other : want)
      grading.expect(has(loss.waiting, other), "rank {} itself is waited for by more ranks than {}", rank,
                     list(loss.waiting));
  }
}

void check_at_work(const Answers& answers, Grading& grading) {
  for (int scenario = 0; scenario < 2; ++scenario) {
    const Program program = pipeline(grading);
    const double timeout = grading.pick(10, 40);
    const int rank = grading.pick(0, program.mesh.ranks() - 1);
    FlightRecord record = record_of(program, stop_in(program, rank, grading), 0.01 * grading.pick(101, 130) * timeout);
    still_computes(record, rank, grading);
    const Loss loss = answers.find_lost(record, timeout);
    grading.expect(loss.rank < 0,
                   "every rank is alive: one computes for a long time, and the others wait for it; you accuse {}",
                   page_of(record, loss.rank));
  }
}

// ---- part 4 ---------------------------------------------------------------------------------------------------------

/// Whether the copies of the named tensor differ in that step; of any tensor, if it has no name.
bool differ(const HashRecord& record, int step, const std::string& tensor = {}) {
  for (const HashCheck& check : record.checks)
    for (const CopyHashes& copies : check.tensors)
      if (check.step == step && (tensor.empty() || copies.tensor == tensor) &&
          std::ranges::adjacent_find(copies.hashes, std::not_equal_to<>()) != copies.hashes.end())
        return true;
  return false;
}

void compare(Grading& grading, const Replicas& planted, const HashRecord& record, const Flip& flip) {
  const int copies = static_cast<int>(record.ranks.size());
  grading.expect(flip.step >= 0, "a bit of one of {} copies flips, and you see no difference", copies);
  grading.expect(differ(record, flip.step), "you name step {}; all copies are equal there", flip.step);
  grading.expect(flip.step == planted.step, "you name step {}; copies have differed since before that", flip.step);
  grading.expect(differ(record, flip.step, flip.tensor), "you name {} in step {}; all copies of it are equal there",
                 flip.tensor, flip.step);
  for (const int rank : flip.ranks)
    grading.expect(has(record.ranks, rank), "you accuse rank {}; the copies are on {}", rank, list(record.ranks));
  const int wrong = record.ranks[at(planted.replica)];
  if (copies == 2) {
    grading.expect(has(flip.ranks, record.ranks[0]) && has(flip.ranks, record.ranks[1]),
                   "two copies of {} differ; you accuse {}. What tells that the other is right?", flip.tensor,
                   list(flip.ranks));
    return;
  }
  for (const int rank : flip.ranks)
    grading.expect(rank == wrong,
                   "{} copies of {} on {}: you accuse rank {}, whose copy in step {} is that of {} others", copies,
                   flip.tensor, list(record.ranks), rank, flip.step, copies - 2);
  grading.expect(flip.ranks.size() == 1, "{} copies of {}: you accuse {}", copies, flip.tensor, list(flip.ranks));
}

void check_flips(const Answers& answers, Grading& grading, int fewest, int most) {
  using Copy = Replicas::Copy;
  for (const Copy which : {Copy::momentum, Copy::master, Copy::weight, Copy::momentum}) {
    const int copies = grading.pick(fewest, most);
    Replicas job = replicas(grading, copies);
    plant(job, grading, which, which == Copy::master ? 0 : grading.pick(0, copies - 1));
    const HashRecord record = hashes_of(job);
    compare(grading, job, record, answers.find_flip(record));
  }
}

void check_no_flip(const Answers& answers, Grading& grading) {
  const HashRecord record = hashes_of(replicas(grading, grading.pick(2, 4)));
  const Flip flip = answers.find_flip(record);
  grading.expect(flip.step < 0, "all copies are equal in all steps; you name {} in step {}", flip.tensor, flip.step);
}

// ---- predictions ----------------------------------------------------------------------------------------------------

void check_predictions(const Answers& answers, Grading& grading) {
  const int ranks = grading.pick(4, 9);
  const double compute = 1e-3 * grading.pick(10, 99), factor = 0.1 * grading.pick(12, 30);
  const double all_reduce = 1e-3 * grading.pick(2, 9);
  const std::string slow =
      fmt::format("{} ranks, {:.0f} ms of work, {:.1f} times as much on one", ranks, 1e3 * compute, factor);
  grading.predict("seconds of a step with a slow rank",
                  fmt::format("{}, an all-reduce of {:.0f} ms", slow, 1e3 * all_reduce),
                  answers.step_seconds(ranks, compute, factor, all_reduce),
                  step_with_slow_rank(ranks, compute, factor, all_reduce).seconds);
  const auto waiting = [&](double times) {  // of all ranks, with links of no latency to speak of
    const Timeline timeline = step_with_slow_rank(ranks, compute, times, 1e-9);
    double seconds = 0;
    for (int rank = 0; rank < ranks; ++rank) seconds += timeline.exposed(rank);
    return seconds;
  };
  grading.predict("seconds that all ranks together wait for a slow one", slow,
                  answers.idle_seconds(ranks, compute, factor), waiting(factor) - waiting(1), 1e-4);
  const int steps = grading.pick(20, 3000);
  grading.predict(fmt::format("comparisons to find one of {} steps", steps), fmt::format("{} steps", steps),
                  answers.comparisons(steps), measured_comparisons(steps));
  const int flip = grading.pick(130, 200), check_every = grading.pick(5, 12), save_every = grading.pick(30, 60);
  const double step = 0.1 * grading.pick(5, 30), restart = grading.pick(20, 90);
  grading.predict(
      "seconds lost by a bit flip",
      fmt::format("a flip in step {}, a check every {} steps, a checkpoint every {}, {:.1f} s a step, {:.0f} "
                  "s to start again",
                  flip, check_every, save_every, step, restart),
      answers.seconds_lost(flip, check_every, save_every, step, restart),
      measured_loss(flip, check_every, save_every, step, restart));
}

}  // namespace

void grade(const Answers& answers, Grading& grading) {
  using Fault = Fault::Kind;
  using Kind = Hang::Kind;
  check_predictions(answers, grading);
  grading.check("find_lag: a slow rank", [&] { check_slow_rank(answers, grading); });
  grading.check("find_lag: a slow link", [&] { check_slow_link(answers, grading); });
  grading.check("find_lag: nobody", [&] { check_nobody_slow(answers, grading); });
  grading.check("waits_for", [&] { check_waits(answers, grading); });
  grading.check("find_hang: a rank that does not come",
                [&] { check_hang(answers, grading, Fault::stops, Kind::missing, "one rank has stopped"); });
  grading.check("find_hang: another operation", [&] {
    check_hang(answers, grading, Fault::calls_another, Kind::other_operation,
               "one rank calls another operation than its group");
  });
  grading.check("find_hang: another number of elements", [&] {
    check_hang(answers, grading, Fault::other_count, Kind::other_count,
               "one rank calls the operation of its group with another number of elements");
  });
  grading.check("find_hang: an operation left out", [&] {
    check_hang(answers, grading, Fault::skips, Kind::other_operation,
               "one rank has left out an operation, and is in the next");
  });
  grading.check("find_lost: a dead rank", [&] { check_lost(answers, grading); });
  grading.check("find_lost: slow is not stopped", [&] { check_at_work(answers, grading); });
  grading.check("find_flip: three copies or more", [&] { check_flips(answers, grading, 3, 5); });
  grading.check("find_flip: two copies", [&] { check_flips(answers, grading, 2, 2); });
  grading.check("find_flip: no flip", [&] { check_no_flip(answers, grading); });
}

}  // namespace trireme::labs::diagnosis
