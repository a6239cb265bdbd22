#include "train/program/program.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include "train/program/launcher.h"
#include "train/program/screen.h"
#include "train/program/signals.h"

namespace trireme {

namespace {

Error internal(const std::exception& error) {
  return {ExitCode::internal, "internal", fmt::format("{}; this is a bug in Trireme", error.what())};
}

}  // namespace

Error to_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) { return error; } catch (const std::bad_alloc&) {
    return {ExitCode::retryable, "memory",
            "out of host memory, asked for by something other than a tensor; lower --micro-batch, --context or the "
            "model's size"};
  } catch (const std::system_error& error) {  // thrown by threads
    if (error.code() != std::errc::resource_unavailable_try_again) return internal(error);
    return {ExitCode::retryable, "threads",
            "a thread could not be started: no memory or no threads are left for this user; lower --threads or the "
            "number of ranks, or raise the limits (ulimit -v, ulimit -u)"};
  } catch (const std::exception& error) { return internal(error); }
}

std::string fatal_message(const std::exception_ptr& exception) {
  std::string place, note;
  try {
    std::rethrow_exception(exception);
  } catch (const PlacedError& error) {
    place = error.place();
    note = error.note();
  } catch (...) {  // no place, no note
  }
  const Error error = to_error(exception);
  std::string_view what = error.what();
  constexpr std::string_view name = "trireme: ";  // FATAL[CODE] comes after this prefix
  if (what.starts_with(name)) what.remove_prefix(name.size());
  return fmt::format("trireme: FATAL[{}] {}{}{}{}{}", static_cast<int>(error.code()), place, place.empty() ? "" : ": ",
                     what, note.empty() ? "" : "; ", note);
}

int report(const std::exception_ptr& exception) {
  if (first_to_report()) {
    Screen::of_process().last_words(fatal_message(exception));
  } else {
    // A launcher ends all processes once one has ended. Wait, so that the message is printed first.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return static_cast<int>(to_error(exception).code());
}

int run_program(const std::function<int()>& body) {
  // A write beyond the file size limit then returns an error (core/io.cpp) instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  try {
    const int code = body();
    const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
    // Not an error: a terminal was closed, or a signal asked to leave, after which the reader may have gone first.
    if (lost && !terminal && !signals_noted().leave)
      fail(ExitCode::io, "stdout", "the output could not be written: {}; make room, or send it elsewhere",
           std::strerror(errno));
    return code;
  } catch (...) { return report(std::current_exception()); }
}

}  // namespace trireme
