#include "ops/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "ops/plan/clock.h"

namespace trireme::plan {
namespace {

/// A collective of some ranks: it begins when all that are simulated have come, and is over when all have done their
/// part.
struct Meeting {
  Meeting(Clock& clock, int which, int ranks, double late, TransferTime time)
      : group(which), latest(late), missing(ranks), busy(ranks), part(time), all_came(clock), over(clock) {}
  int group;
  double latest;  // when the last of the ranks comes that are not simulated: standard deviations after the mean
  int missing, busy;
  TransferTime part;
  Signal all_came, over;
};

class Simulation {
 public:
  Simulation(const std::vector<RankProgram>& ranks, const MachineModel& machine)
      : machine_(machine), clock_(machine.shared_cores()) {
    for (const RankProgram& program : ranks) {
      const double pace = 1 + machine.variation().devices * expected_largest(program.like_it);
      ranks_.push_back(std::make_unique<Rank>(program, machine.node_of(program.rank), pace, clock_));
      simulated_.insert(program.rank);
      for (const Trace::Group& group : program.trace->groups())
        ranks_.back()->groups.push_back(
            groups_.try_emplace({group.name, group.members}, static_cast<int>(groups_.size())).first->second);
    }
  }
  Clock& clock() { return clock_; }

  std::vector<RankTime> run(Timeline* timeline) {
    for (const auto& rank : ranks_) {
      run_program(*rank);
      run_background(*rank);
    }
    clock_.run();
    std::vector<RankTime> times;
    for (const auto& rank : ranks_) {
      const std::size_t events = rank->trace().events().size();
      if (rank->at != events)
        fail(ExitCode::internal, "plan",
             "in the simulation rank {} waits for ever, at event {} of {}; expected traces of ranks that run together",
             rank->program.rank, rank->at, events);
      times.push_back(rank->time);
    }
    if (timeline != nullptr) *timeline = timeline_of_step();
    return times;
  }

 private:
  /// A collective, and its number in the trace of a rank.
  struct Turn {
    std::shared_ptr<Meeting> meeting;
    int transfer;
  };
  /// How much later a rank is than if no kernel's time varied, and the variance of that.
  struct Delay {
    double seconds = 0, variance = 0;
  };
  struct Rank {
    Rank(const RankProgram& what, int where, double times, Clock& clock)
        : program(what), node(where), pace(times), queue(clock) {}

    RankProgram program;
    int node;
    double pace;              // how many times as long its kernels take as on the mean device
    std::vector<int> groups;  // their numbers in the simulation
    std::size_t at = 0;       // event
    double owed = 0;          // the program's own work since the last kernel
    double step_began = 0;
    Delay delay;                                       // by variation, since the beginning
    std::map<int, Delay> met;                          // what it was at the last collective, by group
    std::map<int, int> turns;                          // collectives so far, by group
    std::map<int, std::shared_ptr<Meeting>> meetings;  // that it has not waited for, by transfer
    Mailbox<Turn> queue;                               // of its communication thread
    RankTime time;
    Timeline::Rank spans;  // of the clock

    const Trace& trace() const { return *program.trace; }
    const Trace::Group& group(const Trace::Transfer& t) const { return trace().groups()[index(t.group)]; }
    static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  };

  // ---- a rank's program --------------------------------------------------------------------------------------------

  Process run_program(Rank& rank) {
    const Trace& trace = rank.trace();
    for (; rank.at < trace.events().size(); ++rank.at) {
      const Trace::Event& event = trace.events()[rank.at];
      rank.owed += machine_.host(event.host_seconds);
      if (event.kind == Trace::EventKind::mark) {
        end_step(rank, event.index);
      } else if (event.kind == Trace::EventKind::kernel) {
        const ProfileEvent& call = trace.kernels()[Rank::index(event.index)];
        const double kernel = varied(rank, machine_.kernel(call)), host = std::exchange(rank.owed, 0);
        rank.time.kernels[call.name] += kernel;
        rank.time.host += host;
        const double before = clock_.now();
        co_await clock_.work(kernel + host, rank.program.threads, rank.node);
        rank.spans.program.push_back({rank.at, before, clock_.now()});
      } else {
        const Trace::Transfer& transfer = trace.transfers()[Rank::index(event.index)];
        const double before = clock_.now();
        if (transfer.kind == Trace::TransferKind::send) {
          const TransferTime time = machine_.message(transfer, rank.program.rank);
          co_await clock_.work(time.processor, 1, rank.node);
          const auto arrived = std::make_shared<Signal>(clock_);
          channel(rank, transfer).put(arrived);
          deliver(rank.program.rank, time, arrived);
        } else if (event.kind == Trace::EventKind::start) {
          if (transfer.kind == Trace::TransferKind::collective) start(rank, event.index, transfer);
        } else if (transfer.kind == Trace::TransferKind::receive) {
          Mailbox<std::shared_ptr<Signal>>& box = channel(rank, transfer);
          while (box.empty()) co_await box.more();
          const std::shared_ptr<Signal> arrived = box.take();
          co_await *arrived;
          if (sleeps(clock_.now() - before)) co_await clock_.sleep(machine_.wake());
        } else {
          const std::shared_ptr<Meeting> meeting = rank.meetings.extract(event.index).mapped();
          if (!transfer.background) take_part(rank, meeting);
          co_await meeting->over;
        }
        rank.time.exchanges[rank.group(transfer).name] += clock_.now() - before;
        if (clock_.now() > before) rank.spans.program.push_back({rank.at, before, clock_.now()});
      }
    }
  }

  void end_step(Rank& rank, int step) {
    const double seconds = clock_.now() - std::exchange(rank.step_began, clock_.now());
    if (step == 0) {  // a later one counts
      rank.time = {};
      rank.spans = {};
    }
    rank.time.step = seconds;
  }

  Timeline timeline_of_step() {
    Timeline timeline;
    double first = clock_.now();
    for (const auto& rank : ranks_) first = std::min(first, rank->step_began - rank->time.step);
    for (const auto& rank : ranks_) {
      timeline.ranks.push_back(std::move(rank->spans));
      timeline.seconds = std::max(timeline.seconds, rank->step_began - first);
      for (auto* spans : {&timeline.ranks.back().program, &timeline.ranks.back().background})
        for (Timeline::Span& span : *spans) {
          span.begin = std::max(0.0, span.begin - first);
          span.end -= first;
        }
    }
    return timeline;
  }

  /// Whether a thread that waits for `seconds` sleeps. It spins in a short wait.
  bool sleeps(double seconds) const {
    constexpr double spins = 50e-6;
    return machine_.wake() > 0 && seconds > spins;
  }

  // ---- variation ---------------------------------------------------------------------------------------------------

  /// What a kernel takes this time.
  double varied(Rank& rank, double seconds) const {
    const Variation variation = machine_.variation();
    seconds *= rank.pace;
    if (variation.calls == 0) return seconds;
    constexpr std::uint64_t seed = 1;
    const double sigma = variation.calls * seconds;
    const double late =
        std::max(sigma * random_normal(seed, static_cast<std::uint64_t>(rank.program.rank), rank.at), -seconds);
    rank.delay.seconds += late;
    rank.delay.variance += sigma * sigma;
    return seconds + late;
  }

  /// How long after `rank` the last of the others comes that are not simulated, whose kernels vary as much.
  double lateness_of_others(Rank& rank, const Meeting& meeting) const {
    Delay& before = rank.met[meeting.group];
    const double own = rank.delay.seconds - before.seconds, variance = rank.delay.variance - before.variance;
    before = rank.delay;
    return variance > 0 ? std::max(0.0, std::sqrt(variance) * meeting.latest - own) : 0;
  }

  // ---- collectives -------------------------------------------------------------------------------------------------

  void start(Rank& rank, int number, const Trace::Transfer& transfer) {
    const int group = rank.groups[Rank::index(transfer.group)];
    std::shared_ptr<Meeting>& meeting = meetings_[{group, rank.turns[group]++}];
    if (meeting == nullptr) {
      const std::vector<int>& members = rank.group(transfer).members;
      const auto [found, is_new] = present_.try_emplace(group);
      int& ranks = found->second;
      if (is_new)
        ranks =
            static_cast<int>(std::ranges::count_if(members, [&](int member) { return simulated_.contains(member); }));
      const double others = static_cast<double>(members.size()) - ranks;
      constexpr double never = -std::numeric_limits<double>::infinity();
      const double latest = machine_.variation().calls == 0 || others == 0 ? never : expected_largest(others);
      meeting =
          std::make_shared<Meeting>(clock_, group, ranks, latest, machine_.collective(transfer, rank.group(transfer)));
    }
    rank.meetings.emplace(number, meeting);
    if (transfer.background) rank.queue.put({meeting, number});
  }

  Process take_part(Rank& rank, std::shared_ptr<Meeting> meeting) {
    const double came = clock_.now();
    co_await clock_.sleep(lateness_of_others(rank, *meeting));
    if (--meeting->missing == 0) meeting->all_came.give();
    co_await meeting->all_came;
    if (sleeps(clock_.now() - came)) co_await clock_.sleep(machine_.wake());
    co_await clock_.work(meeting->part.processor, 1, rank.node);
    co_await clock_.sleep(meeting->part.link - meeting->part.busy);
    co_await clock_.transmit(meeting->part.busy, port(rank.program.rank, meeting->part.port));
    if (--meeting->busy == 0) meeting->over.give();
  }

  /// Its communication thread runs one after the other.
  Process run_background(Rank& rank) {
    while (true) {
      while (rank.queue.empty()) co_await rank.queue.more();
      const Turn turn = rank.queue.take();
      take_part(rank, turn.meeting);
      co_await turn.meeting->all_came;
      const double began = clock_.now();
      co_await turn.meeting->over;
      rank.spans.background.push_back({Rank::index(turn.transfer), began, clock_.now()});
    }
  }

  // ---- messages ----------------------------------------------------------------------------------------------------

  static int port(int rank, TransferTime::Port which) { return 2 * rank + static_cast<int>(which); }

  Process deliver(int from, TransferTime time, std::shared_ptr<Signal> arrived) {
    co_await clock_.sleep(time.link - time.busy);
    co_await clock_.transmit(time.busy, port(from, time.port));
    arrived->give();
  }

  /// The arrivals of the messages of one channel. A peer that is not simulated does what this rank does: its message
  /// comes when this rank sends one.
  Mailbox<std::shared_ptr<Signal>>& channel(const Rank& rank, const Trace::Transfer& transfer) {
    const int own = rank.program.rank, peer = simulated_.contains(transfer.peer) ? transfer.peer : own;
    const bool sends = transfer.kind == Trace::TransferKind::send;
    const std::tuple key(rank.groups[Rank::index(transfer.group)], sends ? own : peer, sends ? peer : own,
                         transfer.tag);
    return channels_.try_emplace(key, clock_).first->second;
  }

  const MachineModel& machine_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::set<int> simulated_;                                           // ranks of the world
  std::map<int, int> present_;                                        // how many of them are in a group
  std::map<std::pair<std::string, std::vector<int>>, int> groups_;    // numbers, by name and members
  std::map<std::pair<int, int>, std::shared_ptr<Meeting>> meetings_;  // by group and turn
  std::map<std::tuple<int, int, int, int>, Mailbox<std::shared_ptr<Signal>>> channels_;
  Clock clock_;  // the last: it ends coroutines, which use the others
};

}  // namespace

std::vector<RankTime> simulate(const std::vector<RankProgram>& ranks, const MachineModel& machine, Timeline* timeline) {
  return Simulation(ranks, machine).run(timeline);
}

double expected_largest(double count) {
  if (count <= 1) return 0;
  const double share = (count - 0.375) / (count + 0.25);  // of all numbers that are smaller
  double low = 0, high = 40;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::numbers::sqrt2) < share ? low : high) = middle;
  }
  return low;
}

double step_seconds(const std::vector<RankTime>& ranks) {
  double most = 0;
  for (const RankTime& rank : ranks) most = std::max(most, rank.step);
  return most;
}

}  // namespace trireme::plan
