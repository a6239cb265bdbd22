// A rank that writes down its operations, and may have a fault: the hung jobs of parts 2 and 3 are made of such ranks.
// Read next: scenario_records.h, the job.
#pragma once

#include <exception>
#include <map>

#include "core/hash.h"
#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis {

/// Makes one rank behave differently from the program.
struct Fault {
  enum class Kind : std::uint8_t { stops, calls_another, other_count, skips };
  Kind kind = Kind::stops;
  int rank = 0;
  int at = 0;  ///< from its stretches of computing (stops), or from its operations of tensor parallelism (others)
};

/// Ends the program of a rank that stops.
struct Stopped : std::exception {};

/// A rank that writes its page, as parallel/comm/watch/beacon.h does. A collective is a rendezvous: all members tell
/// the first what they call, and it lets them go on if all call the same. Ranks tell each other their time, too: so a
/// page can say how long ago its last heartbeat was.
class Recorder {
 public:
  Recorder(Rank& rank, FlightRecord& record, const Fault& fault)
      : rank_(rank),
        groups_(record.groups),
        page_(record.ranks[at(rank.rank())]),
        fault_(fault),
        faulty_(fault.rank == rank.rank()) {}

  void phase(const char* name) { page_.phase = name; }

  void compute(double seconds) {
    beat();
    if (faulty_ && fault_.kind == Fault::Kind::stops && computed_++ == fault_.at) throw Stopped{};
    now_ += seconds;
  }

  void collective(const std::string& name, std::string operation, std::int64_t count) {
    if (faulty_ && name.starts_with("tp") && fault_.kind != Fault::Kind::stops && called_++ == fault_.at) {
      if (fault_.kind == Fault::Kind::skips) return;
      if (fault_.kind == Fault::Kind::other_count) count /= 2;
      if (fault_.kind == Fault::Kind::calls_another) operation = "all_reduce";
    }
    const Group& group = *std::ranges::find(groups_, name, [](const Group& g) { return g.name; });
    begin({.name = operation, .count = count, .group = name, .sequence = ++sequence_[name]});
    meet(group.ranks, static_cast<double>(hash_bytes(fmt::format("{} {} {}", name, operation, count)) >> 16));
    end();
  }

  void send(int peer, std::int64_t count) {
    begin({.name = "send", .count = count, .peer = peer});
    rank_.send(time_and(0), peer);
    end();
  }

  void receive(int peer, std::int64_t count) {
    begin({.name = "recv", .count = count, .peer = peer});
    take(peer);
    end();
  }

 private:
  void beat() { page_.since_heartbeat = -now_; }  // record_of() adds when the record is written
  void begin(Operation operation) {
    beat();
    page_.operations.push_back(std::move(operation));
  }
  void end() {
    page_.operations.back().ended = true;
    beat();
  }

  Tensor time_and(double call) const {
    Tensor x = Tensor::zeros({2}, DType::f64);
    x.span<double>()[0] = now_;
    x.span<double>()[1] = call;
    return x;
  }
  double take(int peer) {  // returns what it calls
    const Tensor x = rank_.receive(peer);
    now_ = std::max(now_, x.span<const double>()[0] + 1e-4);
    return x.span<const double>()[1];
  }

  void meet(const std::vector<int>& ranks, double call) {
    if (rank_.rank() != ranks.front()) {
      rank_.send(time_and(call), ranks.front());
      take(ranks.front());
      return;
    }
    bool alike = true;
    for (const int member : ranks)
      if (member != rank_.rank()) alike = take(member) == call && alike;
    if (!alike) take(ranks.back());  // which waits, too: for ever
    for (const int member : ranks)
      if (member != rank_.rank()) rank_.send(time_and(0), member);
  }

  Rank& rank_;
  const std::vector<Group>& groups_;
  RankPage& page_;
  const Fault fault_;
  const bool faulty_;
  double now_ = 0;
  int computed_ = 0, called_ = 0;
  std::map<std::string, int> sequence_;
};

}  // namespace trireme::labs::diagnosis
