#include "train/program/screen.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/error.h"
#include "data/utf8.h"
#include "parallel/comm/process_group.h"
#include "train/program/signals.h"
#include "train/program/text_width.h"

namespace trireme {
namespace {

/// One write, so that lines of several processes do not mix.
void write_to(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

/// Columns stay free at the right: a cursor behind the last one is in the next row on some terminals, and a terminal
/// shows ^C and ^Z behind the live line.
constexpr int free_columns = 3;

/// Longer than a terminal may take until it tells a program of a new width: 250 ms in tmux.
constexpr std::chrono::milliseconds settling_time{300};

int columns_of_stdout() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int rows_of_stdout() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/// The first of the variables that is set decides, as in setlocale().
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

/// If the launcher's variables are wrong, the error about them is printed as under a launcher.
bool may_be_launched() {
  try {
    return under_mpi_launcher();
  } catch (const Error&) { return true; }
}

std::string_view begin_of(Style style) {
  switch (style) {
    case Style::plain:
      return "";
    case Style::bold:
      return "\x1b[1m";
    case Style::warning:
      return "\x1b[33m";
    case Style::error:
      return "\x1b[31m";
  }
  return "";
}

}  // namespace

Terminal Terminal::of_stdout() {
  const char* kind = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  Terminal terminal;
  terminal.unicode = locale_is_utf8();
  // A launcher may connect its ranks to a terminal of its own even if its output goes to a pipe.
  if (may_be_launched()) return terminal;
  const bool capable = kind != nullptr && std::string_view(kind) != "dumb";
  const bool coloured = capable && (no_colour == nullptr || *no_colour == '\0');
  terminal.window = isatty(STDOUT_FILENO) == 1;
  terminal.updates = terminal.window && capable;
  terminal.errors = isatty(STDERR_FILENO) == 1;
  terminal.colour = terminal.window && coloured;
  terminal.error_colour = terminal.errors && coloured;
  return terminal;
}

void erase_foreign_live_line() {
  if (isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1) write_to(stderr, "\r\x1b[J");
}

Screen::Screen(Device device, Terminal terminal) : device_(std::move(device)), terminal_(terminal) {}

// Never destroyed: other threads may still write while the process ends.
Screen& Screen::of_process() {
  static Screen* const screen = new Screen({.out = [](std::string_view text) { write_to(stdout, text); },
                                            .err = [](std::string_view text) { write_to(stderr, text); },
                                            .columns = columns_of_stdout,
                                            .rows = rows_of_stdout,
                                            .on_live = note_live_line},
                                           Terminal::of_stdout());
  return *screen;
}

int Screen::text_columns() const {
  constexpr int most = 100, in_a_pipe = 80;
  return terminal_.wraps() ? std::clamp(columns(), 20, most) : in_a_pipe;
}

// If the window has become narrower, most terminals have broken the line into several rows.
std::string Screen::erase() {
  if (drawn_columns_ == 0) return {};
  const int columns = std::max(device_.columns(), 1);
  std::string bytes = "\r";
  for (int row = 1; row < (drawn_columns_ + columns - 1) / columns; ++row) bytes += "\x1b[A";
  drawn_columns_ = 0;
  device_.on_live(false);
  return bytes + "\x1b[J";
}

std::string Screen::draw() {
  if (!live_ || !settled()) return {};
  const int columns = std::max(width_ - free_columns, 1);
  const std::string line = live_(columns);
  const std::string_view cut = cut_to_columns(line, columns);
  drawn_columns_ = columns_of(cut);
  drawn_at_ = device_.now();
  device_.on_live(drawn_columns_ > 0);
  return std::string(cut);
}

/// Whether the window has had its width for a moment.
bool Screen::settled() {
  const int columns = device_.columns();
  if (columns != width_ && std::exchange(width_, columns) != 0) width_changed_at_ = device_.now();
  return device_.now() - width_changed_at_ >= settling_time;
}

std::string Screen::styled(std::string_view text, Style style, bool colour) const {
  std::string safe = safe_text(text);
  if (safe.ends_with('\n')) safe.pop_back();
  if (colour && style != Style::plain) safe = std::string(begin_of(style)) + safe + "\x1b[0m";
  return safe + "\n";
}

/// Writes the text above the live line, or keeps it until the width is settled.
void Screen::write(Text text) {
  const bool hold = drawn_columns_ > 0 && !settled();
  held_.push_back(std::move(text));
  if (!hold) flush();
}

void Screen::flush() {
  std::string bytes = erase();
  bool wait = false;
  for (Text& text : std::exchange(held_, {})) {
    if (!text.error) {
      bytes += text.bytes;
      continue;
    }
    device_.out(std::exchange(bytes, {}));  // also writes what standard output still holds
    device_.err(text.bytes);
    wait = wait || !terminal_.errors;
  }
  if (wait)
    drawn_at_ = device_.now();  // gives the other program time to write before the line is drawn again
  else
    bytes += draw();
  device_.out(bytes);
}

void Screen::print(std::string_view text, Style style) {
  const std::lock_guard lock(mutex_);
  write({.error = false, .bytes = styled(text, style, terminal_.colour)});
}

void Screen::warn(std::string_view text, Style style) {
  const std::lock_guard lock(mutex_);
  const bool breaks = terminal_.wraps() && terminal_.errors;
  const std::string lines = breaks ? wrapped_text(safe_text(text), device_.columns()) : std::string(text);
  write({.error = true, .bytes = styled(lines, style, terminal_.error_colour)});
}

void Screen::warning(std::string_view text) { warn(fmt::format("warning: {}", text), Style::warning); }

void Screen::last_words(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    live_ = nullptr;
    ended_ = true;
    flush();
  }
  warn(text, Style::error);
}

void Screen::show_live(LiveLine line, bool now) {
  using namespace std::chrono_literals;
  const std::lock_guard lock(mutex_);
  if (!terminal_.updates || ended_) return;
  live_ = std::move(line);
  if (drawn_columns_ > 0 && !settled()) return;
  if (now || !held_.empty() || device_.now() - drawn_at_ >= 100ms) flush();
}

void Screen::end_live() {
  const std::lock_guard lock(mutex_);
  live_ = nullptr;
  flush();
}

}  // namespace trireme
