// Progress on the live line of the screen: a bar with a few numbers. TerminalSink draws it for a training run; other
// programs use ProgressBar:
//
//   ProgressBar bar(Screen::of_process(), "verifying", bytes, format_bytes);
//   bar.set(read);   // as often as you like
//
// Read next: train/program/screen.h.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/program/screen.h"

namespace trireme {

/// "━━━━━━────── 45% | 120/2000 | 26.1 steps/s | eta 1m12s" in at most `columns`. The most important fields come first:
/// in a narrow window the bar becomes short, then it and the last fields are left out. Spaces at the end of a field
/// keep room for longer texts: the bar then keeps its length.
std::string progress_line(double fraction, const std::vector<std::string>& fields, int columns, bool unicode);

/// The progress of a job, on a terminal; in a pipe nothing. Any thread may call it.
class ProgressBar {
 public:
  using Format = std::function<std::string(double)>;  ///< makes a text of an amount

  /// `what`: "verifying". `total`: of what set() is given; 0: not known, then there are numbers, and no bar. `format`
  /// makes texts of such amounts: format_bytes, format_count. `begin`: what was done before. The bar is shown from the
  /// first set() until this object is destroyed.
  ProgressBar(Screen& screen, std::string what, double total, Format format, double begin = 0);
  ~ProgressBar() { screen_.end_live(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `facts` are shown in the place of the rate: "34 cases".
  void set(double done, const std::vector<std::string>& facts = {});

 private:
  using Clock = std::chrono::steady_clock;

  Screen& screen_;
  std::string what_;
  double total_;
  Format format_;
  double begin_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace trireme
