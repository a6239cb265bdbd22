#include "examples/labs/harness/clock.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "core/error.h"

namespace trireme::labs {
namespace {

using EventKind = Event::Kind;

/// A line of events of one rank: its own, or a background task.
struct Line {
  int rank;
  int task;  // -1: the rank's own
  const Events* events;
  std::size_t next = 0;
  double now = 0;
  bool ended() const { return next == events->size(); }
};

class Clock {
 public:
  Clock(const Run& run, const comm::Links& links) : network_(links) {
    for (int rank = 0; rank < static_cast<int>(run.ranks.size()); ++rank) {
      const Record& record = run.ranks[at(rank)];
      lines_.push_back({rank, -1, &record.main});
      for (int task = 0; task < static_cast<int>(record.tasks.size()); ++task)
        lines_.push_back({rank, task, &record.tasks[at(task)]});
    }
    timeline_.ranks.resize(run.ranks.size());
  }

  // The line with the earliest time goes on, so that messages take ports in the order of time.
  Timeline timeline() {
    while (true) {
      Line* earliest = nullptr;
      double time = std::numeric_limits<double>::infinity();
      bool finished = true;
      for (Line& line : lines_) {
        if (line.ended()) continue;
        finished = false;
        const std::optional<double> ready = ready_at(line);
        if (!ready || *ready >= time) continue;
        time = *ready;
        earliest = &line;
      }
      if (finished) break;
      require(earliest != nullptr, "clock", "no rank can go on; expected the record of a run that has ended");
      go_on(*earliest, time);
    }
    for (auto& spans : timeline_.ranks)
      std::ranges::stable_sort(spans, {}, [](const Span& span) { return span.begin; });
    return std::move(timeline_);
  }

 private:
  using Task = std::pair<int, int>;  // rank and number

  /// When the line is free for its next event; nothing: a task that cannot begin yet.
  std::optional<double> free_at(const Line& line) const {
    if (line.task < 0 || line.next > 0) return line.now;
    const auto started = started_.find({line.rank, line.task});
    if (started == started_.end()) return std::nullopt;
    if (line.task == 0) return started->second;
    const std::optional<double> before = end_of({line.rank, line.task - 1});
    return before ? std::optional(std::max(*before, started->second)) : std::nullopt;
  }

  /// When the line's next event can happen; nothing: something else must happen first.
  std::optional<double> ready_at(const Line& line) const {
    const std::optional<double> free = free_at(line);
    if (!free) return std::nullopt;
    const double time = *free;
    const Event& event = (*line.events)[line.next];
    if (event.kind == EventKind::receive) {
      const auto arrival = arrivals_.find(event.message);
      if (arrival == arrivals_.end()) return std::nullopt;
      return std::max(time, arrival->second);
    }
    if (event.kind == EventKind::wait) {
      const std::optional<double> end = end_of({line.rank, event.task});
      if (!end) return std::nullopt;
      return std::max(time, *end);
    }
    return time;
  }

  /// When a task ended. One without events ends as it begins.
  std::optional<double> end_of(Task task) const {
    for (const Line& line : lines_) {
      if (line.rank != task.first || line.task != task.second) continue;
      if (!line.ended()) return std::nullopt;
      if (!line.events->empty()) return line.now;
    }
    const auto started = started_.find(task);
    if (started == started_.end()) return std::nullopt;
    if (task.second == 0) return started->second;
    const std::optional<double> before = end_of({task.first, task.second - 1});
    return before ? std::optional(std::max(*before, started->second)) : std::nullopt;
  }

  void go_on(Line& line, double time) {
    const Event& event = (*line.events)[line.next];
    const double begin = *free_at(line);
    switch (event.kind) {
      case EventKind::compute:
        line.now = time + event.seconds;
        note(line, Span::Kind::compute, time, line.now, event);
        break;
      case EventKind::send: {
        const auto times = network_.deliver(line.rank, event.peer, event.bytes, time);
        arrivals_[event.message] = times.arrives;
        line.now = times.leaves;
        note(line, Span::Kind::send, time, line.now, event);
        break;
      }
      case EventKind::receive:
      case EventKind::wait:
        line.now = time;
        note(line, Span::Kind::waits, begin, time, event);
        break;
      case EventKind::start:
        started_[{line.rank, event.task}] = time;
        line.now = time;
        break;
    }
    ++line.next;
    timeline_.seconds = std::max(timeline_.seconds, line.now);
  }

  void note(const Line& line, Span::Kind kind, double begin, double end, const Event& event) {
    if (end > begin) timeline_.ranks[at(line.rank)].push_back({kind, begin, end, event.what, event.peer, line.task});
  }

  comm::Network network_;
  std::vector<Line> lines_;
  std::map<std::int64_t, double> arrivals_;  // by message
  std::map<Task, double> started_;
  Timeline timeline_;
};

double sum(const std::vector<Span>& spans, const std::function<bool(const Span&)>& counts) {
  double seconds = 0;
  for (const Span& span : spans)
    if (counts(span)) seconds += span.end - span.begin;
  return seconds;
}

}  // namespace

double Timeline::computing(int rank) const {
  return sum(ranks[at(rank)], [](const Span& span) { return span.kind == Span::Kind::compute; });
}
double Timeline::exposed(int rank) const {
  return sum(ranks[at(rank)], [](const Span& span) { return span.kind != Span::Kind::compute && span.task < 0; });
}

Timeline timed(const Run& run, const comm::Links& links) { return Clock(run, links).timeline(); }

comm::Links equal_links(double latency, double bytes_per_second) {
  comm::Links links;
  links.within = links.between = {.latency = latency, .seconds_per_byte = 1 / bytes_per_second};
  return links;
}

}  // namespace trireme::labs
