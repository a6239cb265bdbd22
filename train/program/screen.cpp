#include "train/program/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "data/utf8.h"
#include "parallel/comm/process_group.h"
#include "train/program/text_width.h"

namespace trireme {
namespace {

/// One write, so that lines of several processes do not mix.
void write_to(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int columns_of_stdout() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
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
  return style == Style::bold ? "\x1b[1m" : style == Style::warning ? "\x1b[33m" : "";
}

}  // namespace

Terminal Terminal::of_stdout() {
  const char* kind = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  Terminal terminal;
  terminal.unicode = locale_is_utf8();
  // A launcher may connect its ranks to a terminal of its own even if its output goes to a pipe.
  if (may_be_launched()) return terminal;
  terminal.updates = isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
  terminal.errors = isatty(STDERR_FILENO) == 1;
  terminal.colour = terminal.updates && (no_colour == nullptr || *no_colour == '\0');
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
                                            .columns = columns_of_stdout},
                                           Terminal::of_stdout());
  return *screen;
}

// If the window has become narrower, most terminals have broken the line into several rows.
std::string Screen::erase() {
  if (drawn_columns_ == 0) return {};
  const int columns = std::max(device_.columns(), 1);
  std::string bytes = "\r";
  for (int row = 1; row < (drawn_columns_ + columns - 1) / columns; ++row) bytes += "\x1b[A";
  drawn_columns_ = 0;
  return bytes + "\x1b[J";
}

// The last column stays free: a cursor behind it is in the next row on some terminals.
std::string Screen::draw() {
  if (!live_) return {};
  const int columns = std::max(device_.columns() - 1, 1);
  const std::string line = live_(columns);
  const std::string_view cut = cut_to_columns(line, columns);
  drawn_columns_ = columns_of(cut);
  drawn_at_ = device_.now();
  return std::string(cut);
}

void Screen::write(const Write& write, std::string_view text, Style style) const {
  std::string safe = safe_text(text);
  const bool ends = safe.ends_with('\n');
  if (terminal_.colour && style != Style::plain) {
    if (ends) safe.pop_back();
    safe = std::string(begin_of(style)) + safe + "\x1b[0m" + (ends ? "\n" : "");
  }
  write(safe + (ends ? "" : "\n"));
}

void Screen::print(std::string_view text, Style style) {
  const std::lock_guard lock(mutex_);
  std::string bytes = erase();
  write([&](std::string_view line) { bytes += line; }, text, style);
  device_.out(bytes + draw());
}

void Screen::warn(std::string_view text) {
  const std::lock_guard lock(mutex_);
  device_.out(erase());  // also writes what standard output still holds
  write(device_.err, text, Style::plain);
  if (terminal_.errors)
    device_.out(draw());
  else
    drawn_at_ = device_.now();  // gives the other program time to write before the line is drawn again
}

void Screen::last_words(std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    device_.out(erase());
    live_ = nullptr;
    ended_ = true;
  }
  warn(text);
}

void Screen::show_live(LiveLine line) {
  using namespace std::chrono_literals;
  const std::lock_guard lock(mutex_);
  if (!terminal_.updates || ended_) return;
  live_ = std::move(line);
  if (device_.now() - drawn_at_ < 100ms) return;
  const std::string erased = erase();
  device_.out(erased + draw());
}

void Screen::end_live() {
  const std::lock_guard lock(mutex_);
  device_.out(erase());
  live_ = nullptr;
}

}  // namespace trireme
