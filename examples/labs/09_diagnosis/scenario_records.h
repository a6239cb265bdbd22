// Scenarios of parts 2 and 3: a job whose ranks wait for one of them, run on the ranks of the harness until none can go
// on, and its flight record.
// Read next: grader.cpp, which plants the faults.
#pragma once

#include <fmt/ranges.h>

#include <map>

#include "core/error.h"
#include "examples/labs/09_diagnosis/recorder.h"

namespace trireme::labs::diagnosis {

struct Mesh {
  int pp = 1, dp = 1, tp = 1;

  int ranks() const { return pp * dp * tp; }
  int rank(int p, int d, int t) const { return (p * dp + d) * tp + t; }
  int p(int rank) const { return rank / tp / dp; }
  int d(int rank) const { return rank / tp % dp; }
  int t(int rank) const { return rank % tp; }
};

/// The groups of ranks along tp, along data, and all.
inline std::vector<Group> groups_of(const Mesh& mesh) {
  std::map<std::string, std::vector<int>> groups;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    groups[fmt::format("tp[pp={},data={}]", mesh.p(rank), mesh.d(rank))].push_back(rank);
    groups[fmt::format("data[pp={},tp={}]", mesh.p(rank), mesh.t(rank))].push_back(rank);
    groups["world"].push_back(rank);
  }
  std::vector<Group> result;
  for (const auto& [name, ranks] : groups) result.push_back({name, ranks});
  return result;
}

/// How the job is cut, and how long its parts take.
struct Program {
  Mesh mesh = {};
  int layers = 2, micro_batches = 1, steps = 3;
  std::int64_t count = 1024;      ///< elements of an activation
  std::vector<double> seconds{};  ///< by rank: of the forward of a layer

  /// Stretches of computing in a step of one rank.
  int stretches() const { return 2 * layers * micro_batches + 1; }
};

/// Steps of a pipeline whose stages are cut over tp: all micro-batches forward, then backward, sums over replicas, the
/// norm, and the update.
inline void train(Recorder& recorder, const Program& program, int rank) {
  const Mesh& mesh = program.mesh;
  const int p = mesh.p(rank), d = mesh.d(rank), t = mesh.t(rank);
  const std::string tp = fmt::format("tp[pp={},data={}]", p, d), data = fmt::format("data[pp={},tp={}]", p, t);
  const auto stage = [&](int from, int to, double seconds) {
    for (int i = 0; i < program.micro_batches; ++i) {
      if (from >= 0 && from < mesh.pp) recorder.receive(mesh.rank(from, d, t), program.count);
      for (int layer = 0; layer < program.layers; ++layer) {
        recorder.collective(tp, "all_gather", program.count / mesh.tp);
        recorder.compute(seconds);
        recorder.collective(tp, "reduce_scatter", program.count / mesh.tp);
      }
      if (to >= 0 && to < mesh.pp) recorder.send(mesh.rank(to, d, t), program.count);
    }
  };
  const double seconds = program.seconds[at(rank)];
  for (int step = 0; step < program.steps; ++step) {
    recorder.phase("forward");
    stage(p - 1, p + 1, seconds);
    recorder.phase("backward");
    stage(p + 1, p - 1, 2 * seconds);
    recorder.phase("communication");
    for (int bucket = 1; bucket <= 2; ++bucket) recorder.collective(data, "all_reduce", 3 * bucket * program.count);
    recorder.collective("world", "all_reduce", 1);
    recorder.phase("optimizer");
    recorder.compute(seconds / 2);
  }
}

/// The record of the job, `silence` seconds after the faulty rank's last heartbeat.
inline FlightRecord record_of(const Program& program, const Fault& fault, double silence) {
  constexpr std::size_t kept = 8;
  FlightRecord record{.ranks = std::vector<RankPage>(at(program.mesh.ranks())), .groups = groups_of(program.mesh)};
  std::string why;
  try {
    run_ranks({.ranks = program.mesh.ranks()}, [&](Rank& rank) {
      Recorder recorder(rank, record, fault);
      try {
        train(recorder, program, rank.rank());
      } catch (const Stopped&) {}
    });
  } catch (const Error& error) { why = error.reason(); }
  require(why.find("a deadlock") != std::string::npos, "lab", "expected ranks that wait; got: {}", why);
  const double report = silence - record.page(fault.rank).since_heartbeat;
  for (RankPage& page : record.ranks) {
    page.since_heartbeat += report;
    auto& operations = page.operations;
    if (operations.size() > kept) operations.erase(operations.begin(), operations.end() - kept);
  }
  return record;
}

inline std::vector<double> seconds_by_rank(Grading& grading, int ranks) {
  std::vector<double> seconds(at(ranks));
  for (double& s : seconds) s = 1e-3 * grading.pick(90, 110);
  return seconds;
}

inline Program cut_over_tp(Grading& grading) {
  Program program{.mesh = {.dp = 2, .tp = grading.pick(3, 4)}, .count = 120 * grading.pick(2, 9)};
  program.seconds = seconds_by_rank(grading, program.mesh.ranks());
  return program;
}

inline Program pipeline(Grading& grading) {
  Program program{.mesh = {.pp = grading.pick(2, 3), .dp = 2, .tp = 2}, .layers = 1, .micro_batches = 2};
  program.count = 64 * grading.pick(2, 9);
  program.seconds = seconds_by_rank(grading, program.mesh.ranks());
  return program;
}

/// A rank that stops in its second step.
inline Fault stop_in(const Program& program, int rank, Grading& grading) {
  return {Fault::Kind::stops, rank, program.stretches() + grading.pick(0, program.stretches() - 1)};
}

/// As if the rank still computed, before the operation in which it waits.
inline void still_computes(FlightRecord& record, int rank, Grading& grading) {
  RankPage& page = record.ranks[at(rank)];
  if (!page.operations.back().ended) page.operations.pop_back();
  page.since_heartbeat = 0.1 * grading.pick(1, 9);
}

// ---- what the record says, for messages

inline bool has(const std::vector<int>& ranks, int rank) { return std::ranges::count(ranks, rank) > 0; }
inline std::string list(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  return ranks.empty() ? "no rank" : fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

/// "all_gather(256) #7 of 'tp[pp=0,data=1]'".
inline std::string of_operation(const Operation& operation) {
  if (operation.peer >= 0) return fmt::format("{}({}) with rank {}", operation.name, operation.count, operation.peer);
  return fmt::format("{}({}) #{} of '{}'", operation.name, operation.count, operation.sequence, operation.group);
}

/// What the record says of a rank.
inline std::string page_of(const FlightRecord& record, int rank) {
  if (rank < 0 || rank >= record.size()) return fmt::format("rank {}, which is none of {}", rank, record.size());
  const RankPage& page = record.page(rank);
  if (page.operations.empty()) return fmt::format("rank {}: has begun no operation", rank);
  const Operation& last = page.operations.back();
  return fmt::format("rank {}: {} {}, in {}, last heartbeat {:.1f} s ago", rank,
                     last.ended ? "works, after" : "waits in", of_operation(last), page.phase, page.since_heartbeat);
}

/// Whom a rank waits for.
inline std::vector<int> missing_for(const FlightRecord& record, int rank) {
  const auto& operations = record.page(rank).operations;
  if (operations.empty() || operations.back().ended) return {};
  const Operation& last = operations.back();
  if (last.peer >= 0) return {last.peer};
  std::vector<int> missing;
  for (const int member : record.group(last.group).ranks)
    if (std::ranges::none_of(record.page(member).operations, [&](const Operation& operation) {
          return operation.group == last.group && operation.sequence == last.sequence;
        }))
      missing.push_back(member);
  return missing;
}

}  // namespace trireme::labs::diagnosis
