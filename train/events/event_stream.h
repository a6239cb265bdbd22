// EventStream: passes the events of a run to its sinks, in the order in which the sinks were added. Any thread may
// emit events; sinks are called by one thread at a time.
//
//   EventStream events;
//   events.add(std::make_unique<TerminalSink>(...));
//   events.emit(Said{.text = "resuming after step 100"});
//
// A stream without sinks drops its events.
// A sink takes microseconds. One that does more, such as sending, hands its events to a thread of its own. A sink that
// cannot store its events says so once and goes on: training never ends because of a sink.
// Read next: train/events/event.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "train/events/event.h"

namespace trireme {

class EventSink {
 public:
  EventSink() = default;
  virtual ~EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;

  virtual void receive(const Event& event) = 0;
};

class EventStream {
 public:
  void add(std::unique_ptr<EventSink> sink) {
    const std::lock_guard lock(mutex_);
    sinks_.push_back(std::move(sink));
  }
  void emit(const Event& event) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<EventSink>& sink : sinks_) sink->receive(event);
  }
  void say(std::string text) { emit(Said{.text = std::move(text)}); }
  void warn(std::string text) { emit(Said{.level = Said::Level::warning, .text = std::move(text)}); }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EventSink>> sinks_;
};

/// Calls the overload for an event's type: std::visit(Match{[](const Saved& s) { ... }, [](const auto&) {}}, event).
template <class... Fs>
struct Match : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Match(Fs...) -> Match<Fs...>;

}  // namespace trireme
