// TerminalSink: shows a run on the screen. Every line stays; on a terminal there is a live line below them, with a bar,
// the rate, the time left and memory, and at the end a chart of the losses and the result. In a pipe the plan and the
// saves have all their details, for logs; on a terminal they need --verbose.
// Read next: train/program/screen.h; train/events/texts.h, the lines.
#pragma once

#include <optional>

#include "ops/plot/curves.h"
#include "ops/terminal/eta.h"
#include "train/events/event_stream.h"
#include "train/events/texts.h"
#include "train/program/screen.h"

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
  void show(const Activity& activity);
  void show(const Saved& saved);
  void show(const RolledBack& rolled);  // a Said tells why
  void show(const Said& said);
  void show(const RunEnded& ended);
  void show_progress(bool now = false);
  void keep_widths(std::vector<std::string>& fields);
  void show_curves();
  bool on_terminal() const { return screen_.terminal().wraps(); }
  std::string wrapped(const std::string& text) const;

  Screen& screen_;
  Eta eta_;
  bool verbose_;
  RunResult result_;  // so far
  std::int64_t step_ = 0;
  Activity activity_;
  std::vector<int> widths_;               // of the fields of the live line
  RunCurves curves_;                      // of this start of the run
  Screen::Clock::time_point shown_at_{};  // the live line
};

}  // namespace trireme
