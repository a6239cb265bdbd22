// What takes the place of TerminalSink: with --quiet only warnings and the result, with --json every event as a line of
// JSON. Read next: train/events/event_json.h.
#pragma once

#include <string>

#include "train/events/event_stream.h"
#include "train/events/texts.h"
#include "train/program/screen.h"

namespace trireme {

class QuietSink : public EventSink {
 public:
  explicit QuietSink(Screen& screen) : screen_(screen) {}
  void receive(const Event& event) override;

 private:
  void print(const std::string& text, Style style);

  Screen& screen_;
  RunResult result_;  // so far
  std::string path_;  // of the newest checkpoint
};

class JsonSink : public EventSink {
 public:
  explicit JsonSink(Screen& screen) : screen_(screen) {}
  void receive(const Event& event) override;

 private:
  Screen& screen_;
};

}  // namespace trireme
