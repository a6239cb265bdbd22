#include "train/program/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"
#include "data/utf8.h"
#include "train/program/signals.h"

namespace trireme {
namespace {

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

void write_out(std::string_view text) {
  const std::string safe = output_is_terminal() ? safe_text(text) : std::string();
  if (output_is_terminal()) text = safe;
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail_lost(errno);
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
