#include "train/program/console.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "parallel/comm/process_group.h"

namespace trireme {
namespace {

void write_stdout(std::string_view text) {
  std::fputs(std::string(text).c_str(), stdout);
  std::fflush(stdout);
}

/// Columns of UTF-8 text: one per character (continuation bytes count 0).
int columns_of(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// Divides `value` by `base` as often as the result is at least 1, and appends the matching unit.
template <std::size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  while (unit + 1 < N && value >= base * (1 - 1e-9)) {
    value /= base;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0]) : fmt::format("{:.1f}{}", value, units[unit]);
}

}  // namespace

Terminal Terminal::of_stdout() {
  const char* kind = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  Terminal terminal;
  // A launcher may connect its ranks to a terminal of its own even if its output goes to a pipe.
  if (under_mpi_launcher()) return terminal;
  terminal.updates = isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
  terminal.colour = terminal.updates && (no_colour == nullptr || *no_colour == '\0');
  winsize size{};
  if (terminal.updates && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    terminal.columns = size.ws_col;
  return terminal;
}

Console::Console(bool on) : Console(on ? Write(write_stdout) : Write([](std::string_view) {}), Terminal::of_stdout()) {}
Console::Console(Write write, Terminal terminal) : write_(std::move(write)), terminal_(terminal) {}

Console::~Console() {
  if (progress_rows_ > 0) write_("\n");
}

void Console::clear_progress() {
  if (progress_rows_ == 0) return;
  std::string clear = "\r\x1b[K";
  for (int row = 1; row < progress_rows_; ++row) clear += "\x1b[A\x1b[K";  // the line is wider than the screen
  write_(clear);
  progress_rows_ = 0;
}

void Console::print(std::string_view text) {
  clear_progress();
  write_(std::string(text) + (text.ends_with('\n') ? "" : "\n"));
}

void Console::highlight(std::string_view text) {
  if (terminal_.colour)
    print(fmt::format("\x1b[1m{}\x1b[0m", text));
  else
    print(text);
}

void Console::progress(std::string_view text) {
  if (!terminal_.updates) return print(text);
  clear_progress();
  write_(text);
  progress_rows_ = std::max(1, (columns_of(text) + terminal_.columns - 1) / terminal_.columns);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string format_count(double count) { return scaled(count, 1000, std::array{"", "k", "M", "G", "T"}); }
std::string format_bytes(double bytes) { return scaled(bytes, 1024, std::array{" B", " KiB", " MiB", " GiB", " TiB"}); }

std::string step_line(const StepRecord& r, std::int64_t steps, std::string_view rate) {
  const double left = static_cast<double>(steps - r.step) * r.step_ms / 1e3;
  return fmt::format("step {}/{} | loss {:.4f} | lr {:.1e} | norm {:.2f} | {:.1f} ms | {} {} | eta {}", r.step, steps,
                     r.loss, r.lr, r.grad_norm, r.step_ms, format_count(r.tokens_per_s), rate, format_duration(left));
}

std::string validation_line(std::int64_t step, std::int64_t steps, double loss, std::string_view meaning) {
  return fmt::format("step {}/{} | validation loss {:.4f}{}{}", step, steps, loss, meaning.empty() ? "" : " | ",
                     meaning);
}

std::string sample_block(std::int64_t step, std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xC2 && next >= 0x80 && next <= 0x9F;  // U+0080 to U+009F; U+009B begins a command
    const bool control = (byte < 0x20 && text[i] != '\n' && text[i] != '\t') || byte == 0x7F || c1;
    if (control)
      shown += "·";
    else
      shown += text[i];
    if (c1) ++i;
  }
  return fmt::format("--- sample at step {} ---\n{}\n---", step, shown);
}

}  // namespace trireme
