// The screen: standard output and standard error of the process. On a terminal it may have a live line at the bottom,
// such as a progress bar. Programs write both streams through this class, from any thread, so that all text appears
// above the live line and stays. In a pipe, text is written as plain lines.
//
// Text is made safe first (safe_text() in data/utf8.h): a terminal shows it all and takes none of it as a command, even
// if it comes from a file's name or a model. Colours are therefore a Style, not part of the text.
// Read next: train/program/text_width.h; train/terminal/terminal_sink.h, which shows a training run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace trireme {

/// What the terminal can do.
struct Terminal {
  bool updates = false;  ///< lines can be rewritten in place
  bool colour = false;
  bool unicode = false;  ///< shows more characters than ASCII, by the locale
  bool errors = true;    ///< shows standard error, too; otherwise another program may pass that on to the terminal

  /// The abilities of standard output: none in a pipe, under a launcher or with TERM=dumb; no colour with NO_COLOR
  /// (https://no-color.org).
  static Terminal of_stdout();
};

/// Erases the live line that another process may have drawn on this terminal, so that a text can follow on standard
/// error. For a program that starts others.
void erase_foreign_live_line();

enum class Style : std::uint8_t { plain, bold, warning };

class Screen {
 public:
  using Write = std::function<void(std::string_view)>;
  using LiveLine = std::function<std::string(int columns)>;
  using Clock = std::chrono::steady_clock;

  struct Device {
    Write out, err;
    std::function<int()> columns;  ///< the width now: a window may be resized at any time
    std::function<Clock::time_point()> now = Clock::now;
  };
  Screen(Device device, Terminal terminal);
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// The screen of this process.
  static Screen& of_process();

  /// Prints one or more whole lines to standard output.
  void print(std::string_view text, Style style = Style::plain);
  /// Prints one or more whole lines to standard error.
  void warn(std::string_view text);
  /// Like warn(), and ends the live line for good: the process is about to end.
  void last_words(std::string_view text);

  /// Shows a live line below everything else, or changes it. `line` makes a text of at most `columns`, and is called
  /// whenever the line is drawn. It is drawn at most ten times a second. Does nothing unless terminal().updates.
  void show_live(LiveLine line);
  void end_live();

  const Terminal& terminal() const { return terminal_; }
  int columns() const { return device_.columns(); }

 private:
  std::string erase();  // the live line; returns the bytes to write
  std::string draw();
  void write(const Write& write, std::string_view text, Style style) const;

  std::mutex mutex_;
  Device device_;
  Terminal terminal_;
  LiveLine live_;
  int drawn_columns_ = 0;  // of the live line on the screen; 0: there is none
  Clock::time_point drawn_at_{};
  bool ended_ = false;
};

}  // namespace trireme
