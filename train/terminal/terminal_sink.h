// TerminalSink: shows a run on the screen. Every line stays; on a terminal there is a live line below them, with a bar,
// the rate, the time left and memory, and at the end a chart of the losses. In a pipe the plan has all its details, for
// logs; on a terminal they need --verbose. Read next: train/program/screen.h; train/events/texts.h, the lines.
#pragma once

#include <optional>

#include "train/events/event_stream.h"
#include "train/plot/curves.h"
#include "train/program/screen.h"
#include "train/terminal/eta.h"

namespace trireme {

class TerminalSink : public EventSink {
 public:
  /// `schedule`: of the run. `verbose`: show details on a terminal, too. `screen` must outlive this object.
  TerminalSink(Screen& screen, Eta::Schedule schedule, bool verbose)
      : screen_(screen), eta_(schedule), verbose_(verbose) {}
  ~TerminalSink() override { screen_.end_live(); }

  void receive(const Event& event) override;

 private:
  void show(const RunPlanned& planned);
  void show(const RunBegan& began);
  void show(const StepMade& made);
  void show(const StepLogged& logged);
  void show(const Validated& validated);
  void show(const Sampled& sampled);
  void show(const Saved& saved);
  void show(const RolledBack& rolled);  // a Said tells why
  void show(const Said& said);
  void show(const RunEnded& ended);
  void show_progress();
  void show_curves();

  Screen& screen_;
  Eta eta_;
  bool verbose_;
  RunBegan run_;
  std::int64_t step_ = 0;
  std::optional<std::int64_t> peak_bytes_;
  RunCurves curves_;                      // of this start of the run
  Screen::Clock::time_point shown_at_{};  // the live line
};

}  // namespace trireme
