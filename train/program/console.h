// What a run prints. The texts are made by functions that return strings; Console decides how they reach the screen:
// on a terminal the step line updates in place, in a pipe every line is a plain line.
// Read next: train/program/console.cpp; train/report/report.h for the table at the start and the one at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "train/program/metrics.h"

namespace trireme {

/// What can be done with the output.
struct Terminal {
  bool updates = false;  ///< lines can be rewritten in place
  bool colour = false;
  int columns = 80;

  /// Of standard output: nothing in a pipe, under a launcher or with TERM=dumb; no colour with NO_COLOR
  /// (https://no-color.org).
  static Terminal of_stdout();
};

class Console {
 public:
  using Write = std::function<void(std::string_view)>;

  /// Prints to standard output, or nothing at all unless `on`: one rank of a job prints.
  explicit Console(bool on);
  /// For tests: `write` gets every byte.
  Console(Write write, Terminal terminal);
  /// Ends a progress line that is still open, so that what others print starts on a line of its own.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// One or more whole lines that stay.
  void print(std::string_view text);
  /// As print(), to catch the eye: bold where there is colour.
  void highlight(std::string_view text);
  /// A line that the next one replaces on a terminal.
  void progress(std::string_view text);

 private:
  void clear_progress();

  Write write_;
  Terminal terminal_;
  int progress_rows_ = 0;  // of the screen, taken by the progress line that is shown
};

/// 0.31 s: "0s"; 72.4 s: "1m12s"; 7384 s: "2h03m"; 190000 s: "2d04h".
std::string format_duration(double seconds);
/// 950: "950"; 20140: "20.1k"; 1234567: "1.2M".
std::string format_count(double count);
/// 1536: "1.5 KiB".
std::string format_bytes(double bytes);

/// "step 120/2000 | loss 2.1034 | lr 9.7e-04 | norm 0.81 | 38.2 ms | 20.1k tok/s | eta 1m12s".
/// `rate`: what the record's tokens are per second, "tok/s".
std::string step_line(const StepRecord& record, std::int64_t steps, std::string_view rate);
/// "step 500/2000 | validation loss 1.8423 | perplexity 6.31"; `meaning` (Task::explain_loss) may be empty.
std::string validation_line(std::int64_t step, std::int64_t steps, double loss, std::string_view meaning);
/// A sample of generated text between rules. Control characters other than newline and tab are shown as "·".
std::string sample_block(std::int64_t step, std::string_view text);

}  // namespace trireme
