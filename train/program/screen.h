// The screen: standard output and standard error of the process. On a terminal it may have a live line at the bottom,
// such as a progress bar. Programs write both streams through this class, from any thread, so that all text appears
// above the live line and stays. In a pipe, text is written as plain lines.
//
// Text is made safe first (safe_text() in data/utf8.h): a terminal shows it all and takes none of it as a command, even
// if it comes from a file's name or a model. Colours are therefore a Style, not part of the text.
// Read next: train/program/text_width.h; ops/terminal/terminal_sink.h, which shows a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// What the terminal can do.
struct Terminal {
  bool updates = false;  ///< lines can be rewritten in place
  bool colour = false;
  bool unicode = false;       ///< shows more characters than ASCII, by the locale
  bool errors = true;         ///< shows standard error, too; otherwise another program may pass that on to the terminal
  bool window = false;        ///< has a width, even if it cannot update lines (TERM=dumb)
  bool error_colour = false;  ///< standard error is a terminal with colour

  /// Long lines should be broken at words.
  bool wraps() const { return updates || window; }

  /// The abilities of standard output: none in a pipe or under a launcher; only a width with TERM=dumb; no colour with
  /// NO_COLOR (https://no-color.org).
  static Terminal of_stdout();
};

/// Erases the live line that another process may have drawn on this terminal, so that a text can follow on standard
/// error. For a program that starts others.
void erase_foreign_live_line();

/// How a text looks on a terminal with colours.
enum class Style : std::uint8_t { plain, bold, warning, error };

/// Standard output, standard error, and a live line below them.
class Screen {
 public:
  using Write = std::function<void(std::string_view)>;       ///< writes bytes
  using LiveLine = std::function<std::string(int columns)>;  ///< makes the live line for a width
  using Clock = std::chrono::steady_clock;                   ///< what times are measured with

  /// What a Screen writes to.
  struct Device {
    Write out, err;
    std::function<int()> columns;  ///< the width now: a window may be resized at any time
    std::function<int()> rows = [] { return 24; };
    std::function<Clock::time_point()> now = Clock::now;
    std::function<void(bool)> on_live = [](bool) {};  ///< called when a live line appears, and when it is erased
  };
  Screen(Device device, Terminal terminal);
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// The screen of this process.
  static Screen& of_process();

  /// Prints one or more whole lines to standard output.
  void print(std::string_view text, Style style = Style::plain);
  /// Prints one or more whole lines to standard error. On a terminal, long lines are broken at words.
  void warn(std::string_view text, Style style = Style::plain);
  /// warn("warning: TEXT"), in the colour of warnings.
  void warning(std::string_view text);
  /// Like warn() in the colour of errors, and ends the live line for good: the process is about to end.
  void last_words(std::string_view text);

  /// Shows a live line below everything else, or changes it. `line` makes a text of at most `columns`, and is called
  /// whenever the line is drawn. It is drawn at most ten times a second; at once if `now`. Does nothing unless
  /// terminal().updates.
  ///
  /// While the window's width changes, nothing is written: how many rows the terminal has broken the line into is known
  /// only when the width has stayed the same for a moment.
  void show_live(LiveLine line, bool now = false);
  /// Erases the live line.
  void end_live();

  const Terminal& terminal() const { return terminal_; }
  int columns() const { return device_.columns(); }
  int rows() const { return device_.rows(); }
  /// The width into which lines should fit; 0 in a pipe: any width.
  int line_columns() const { return terminal_.wraps() ? columns() : 0; }
  /// The width of text that is made for reading, such as --help: that of the window, up to 100 columns, and 80 in a
  /// pipe.
  int text_columns() const;

 private:
  struct Text {
    bool error;  // to standard error
    std::string bytes;
  };
  std::string erase();  // the live line; returns the bytes to write
  std::string draw();
  bool settled();
  void write(Text text);
  void flush();
  std::string styled(std::string_view text, Style style, bool colour) const;

  std::mutex mutex_;
  Device device_;
  Terminal terminal_;
  LiveLine live_;
  int drawn_columns_ = 0;  // of the live line on the screen; 0: there is none
  Clock::time_point drawn_at_{};
  int width_ = 0;  // of the window when it was last asked; 0: it was not
  Clock::time_point width_changed_at_{};
  std::vector<Text> held_;  // while the width changes
  bool ended_ = false;
};

}  // namespace trireme
