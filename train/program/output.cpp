#include "train/program/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"
#include "data/utf8.h"
#include "train/program/screen.h"
#include "train/program/signals.h"

namespace trireme {
namespace {

bool was_closed = false;  // set before there are other threads

/// `error`: the error number, or 0 if it is not known.
void fail_lost(int error) {
  // Not an error: a terminal was closed, or a signal asked to leave, after which the reader may have gone first.
  if (output_is_terminal() || signals_noted().leave) return;
  fail(ExitCode::io, "stdout", "the output could not be written: {}; make room, or send it elsewhere",
       error == 0 ? "a part of it is missing" : std::strerror(error));
}

}  // namespace

bool output_is_terminal() {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  return terminal;
}

void note_output_closed() { was_closed = true; }

void require_output() {
  if (was_closed)
    fail(ExitCode::io, "stdout",
         "standard output is closed, and what the program prints is its result; expected a terminal, a file or a pipe; "
         "leave out >&-");
}

void write_out(std::string_view text) {
  require_output();
  const std::string safe = output_is_terminal() ? safe_text(text) : std::string();
  if (output_is_terminal()) text = safe;
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail_lost(errno);
}

void write_out_bold(std::string_view text) {
  const bool colour = Screen::of_process().terminal().colour;
  if (colour) std::fputs("\x1b[1m", stdout);
  write_out(text);
  if (colour) std::fputs("\x1b[0m", stdout);
}

void require_written() {
  errno = 0;
  if (std::fflush(stdout) != 0) return fail_lost(errno);
  if (std::ferror(stdout) == 0) return;
  // The reason was lost with the write that failed. Another write usually fails for the same one.
  std::clearerr(stdout);
  errno = 0;
  fail_lost(std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0 ? errno : 0);
}

}  // namespace trireme
