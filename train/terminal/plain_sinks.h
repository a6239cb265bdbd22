// What takes the place of TerminalSink: with --quiet only warnings and the result, with --json every event as a line of
// JSON. Read next: train/events/event_json.h.
#pragma once

#include <optional>

#include "train/events/event_stream.h"
#include "train/program/screen.h"

namespace trireme {

class QuietSink : public EventSink {
 public:
  explicit QuietSink(Screen& screen) : screen_(screen) {}
  void receive(const Event& event) override;

 private:
  void print_result(const RunEnded& ended);

  Screen& screen_;
  std::optional<Saved> saved_;  // the newest
  std::optional<Validated> validated_;
  std::optional<StepLogged> logged_;
};

class JsonSink : public EventSink {
 public:
  explicit JsonSink(Screen& screen) : screen_(screen) {}
  void receive(const Event& event) override;

 private:
  Screen& screen_;
};

}  // namespace trireme
