// The output of a run. Functions that return strings make the texts; Console prints them. On a terminal, the step line
// is updated in place; in a pipe, every line is a plain line.
// Read next: train/program/console.cpp; train/report/report.h for the table at the start and the one at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "train/program/metrics.h"

namespace trireme {

/// What the terminal can do.
struct Terminal {
  bool updates = false;  ///< lines can be rewritten in place
  bool colour = false;
  int columns = 80;

  /// The abilities of standard output: none in a pipe, under a launcher or with TERM=dumb; no colour with NO_COLOR
  /// (https://no-color.org).
  static Terminal of_stdout();
};

class Console {
 public:
  using Write = std::function<void(std::string_view)>;

  /// Prints to standard output if `on`, otherwise nothing: only one rank of a job prints.
  explicit Console(bool on);
  /// For tests: `write` receives every byte.
  Console(Write write, Terminal terminal);
  /// Ends an open progress line, so that later output starts on a new line.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Prints one or more whole lines that stay.
  void print(std::string_view text);
  /// Like print(), but bold if the terminal has colour.
  void highlight(std::string_view text);
  /// Prints a line that, on a terminal, the next line replaces.
  void progress(std::string_view text);

 private:
  void clear_progress();

  Write write_;
  Terminal terminal_;
  int progress_rows_ = 0;  // screen rows of the visible progress line
};

/// 0.31 s: "0s"; 72.4 s: "1m12s"; 7384 s: "2h03m"; 190000 s: "2d04h".
std::string format_duration(double seconds);
/// 950: "950"; 20140: "20.1k"; 1234567: "1.2M".
std::string format_count(double count);
/// 1536: "1.5 KiB".
std::string format_bytes(double bytes);

/// "step 120/2000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s". `rate`: the unit of the
/// record's tokens per second, "tok/s".
std::string step_line(const StepRecord& record, std::int64_t steps, std::string_view rate);
/// "step 500/2000 | validation loss 1.8423 | perplexity 6.31"; `meaning` (Task::explain_loss) may be empty.
std::string validation_line(std::int64_t step, std::int64_t steps, double loss, std::string_view meaning);
/// A sample of generated text between rules. Control characters other than newline and tab are shown as "·".
std::string sample_block(std::int64_t step, std::string_view text);

}  // namespace trireme
