// TerminalSink: shows a run on the screen. Read next: train/program/screen.h; train/events/texts.h, the lines.
#pragma once

#include "train/events/event_stream.h"
#include "train/program/screen.h"

namespace trireme {

class TerminalSink : public EventSink {
 public:
  explicit TerminalSink(Screen& screen) : screen_(screen) {}
  ~TerminalSink() override { screen_.end_live(); }

  void receive(const Event& event) override;

 private:
  void show(const RunPlanned& planned);
  void show(const RunBegan& began);
  void show(const StepMade&) {}
  void show(const StepLogged& logged);
  void show(const Validated& validated);
  void show(const Sampled& sampled);
  void show(const Saved& saved);
  void show(const RolledBack&) {}  // a Said tells why
  void show(const Said& said);
  void show(const RunEnded& ended);

  Screen& screen_;
  RunBegan run_;
};

}  // namespace trireme
