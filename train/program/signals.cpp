#include "train/program/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "train/program/launcher.h"

namespace trireme {
namespace {

// Signals go to the whole process, and a handler takes no context. So these two are shared by all ranks of the process.
using Clock = std::chrono::steady_clock;
std::atomic<bool> leave_noted{false};
std::atomic<Clock::rep> save_noted{0};  // time of the request; 0: none
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<Clock::rep>::is_always_lock_free,
              "a signal handler may not wait for a lock");

std::atomic<bool> training{false}, live_line{false};
std::atomic<std::int64_t> last_saved{-1};
// Set before the handlers are installed. Only one process of a job prints.
bool tells = true, launched = false;

// In handlers only functions are allowed that may be called there; their failures do not matter.
void tell(std::string_view text) { static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size())); }
void tell(std::int64_t number) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  tell({digits.data(), end});
}
/// The terminal has shown ^C or ^Z behind the live line. Where there is no live line, a message begins a new line.
void leave_line() {
  constexpr std::string_view erase = "\r\x1b[J";
  if (live_line.exchange(false))
    static_cast<void>(!::write(STDOUT_FILENO, erase.data(), erase.size()));
  else
    tell("\n");
}

/// Nothing can be saved yet, and what goes on at the start, such as reading data, may take long. A launcher sends
/// SIGTERM when another rank has failed: that rank has printed why.
void leave_before_training(int signal) {
  if (tells && !(launched && signal == SIGTERM))
    tell("trireme: told to stop before training began; nothing was lost, and nothing was saved\n");
  ::_exit(static_cast<int>(ExitCode::retryable));
}

void note_leave(int signal) {
  if (!training) leave_before_training(signal);
  leave_noted = true;
}
void note_save(int /*signal*/) { save_noted = Clock::now().time_since_epoch().count(); }

std::atomic<int> interrupts{0};
std::atomic<bool> interrupt_told{false};
/// The first SIGINT asks to leave; the second ends the process as if it were not caught. The second waits until the
/// first, which may run on another thread, has printed its message.
void note_interrupt(int signal) {
  if (!training) leave_before_training(signal);
  if (interrupts.fetch_add(1) > 0) {
    while (!interrupt_told) {}
    if (tells) {
      leave_line();
      tell("interrupted again: ended at once; ");
      if (const std::int64_t step = last_saved; step >= 0) {
        tell("the newest checkpoint is that of step ");
        tell(step);
        tell("\n");
      } else {
        tell("this run has saved nothing\n");
      }
    }
    ::signal(signal, SIG_DFL);
    static_cast<void>(::raise(signal));
    return;
  }
  const int error = errno;
  if (tells) {
    leave_line();
    tell("interrupted: ending after the step under way; interrupt again to end at once\n");
  }
  errno = error;
  leave_noted = true;
  interrupt_told = true;
}

void handle(int signal, void (*handler)(int), int flags = 0) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | flags;  // interrupted reads and writes continue
  sigemptyset(&action.sa_mask);
  require(::sigaction(signal, &action, nullptr) == 0, "signals", "signal {} cannot be caught", signal);
}

/// Stops the process as if the signal were not caught. It goes on here after SIGCONT.
void stop(int signal) {
  const int error = errno;
  if (live_line) leave_line();
  handle(signal, SIG_DFL);
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, signal);
  static_cast<void>(::raise(signal));
  ::pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);  // the signal is blocked while its handler runs
  handle(signal, stop);
  errno = error;
}

/// The process that started the job, if it is still alive: the parent, or the launcher's parent. An orphaned process
/// gets a different parent.
pid_t starter() { return launcher_ranks() > 0 ? parent_of(::getppid()).value_or(0) : ::getppid(); }

std::optional<pid_t> supervisor_was;

// Of programs that make texts. Another signal than SIGINT asks to end the program, whatever it does.
std::atomic<bool> end_noted{false};
void note_leave_of_texts(int signal) {
  if (signal != SIGINT) end_noted = true;
  leave_noted = true;
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_signals() {
  tells = launcher_rank() == 0;
  launched = launcher_ranks() > 0;
  handle(SIGTERM, note_leave);
  handle(SIGUSR2, note_leave);
  handle(SIGUSR1, note_save);
  handle(SIGXCPU, note_leave);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, note_leave);
  interrupts = 0;
  interrupt_told = false;
  if (!is_ignored(SIGINT)) handle(SIGINT, note_interrupt);
  if (!is_ignored(SIGTSTP)) handle(SIGTSTP, stop);
  if (std::getenv(restarts_variable) != nullptr) supervisor_was = starter();
}

void catch_broken_pipes() {
  if (!is_ignored(SIGPIPE)) handle(SIGPIPE, note_leave);
}

void note_training_begins() { training = true; }

void note_live_line(bool shown) { live_line = shown; }

void note_saved(std::int64_t step) { last_saved = step; }

bool supervisor_gone() { return supervisor_was && *supervisor_was != starter(); }

bool leave_asked() { return leave_noted; }

void catch_signals_of_texts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR2, SIGXCPU})
    if (!is_ignored(signal)) handle(signal, note_leave_of_texts, SA_RESETHAND);
}

bool only_interrupted() { return leave_noted && !end_noted; }

void forget_interrupt() {
  leave_noted = end_noted.load();
  if (!is_ignored(SIGINT)) handle(SIGINT, note_leave_of_texts, SA_RESETHAND);
  if (end_noted) leave_noted = true;  // noted since
}

SignalsNoted signals_noted() {
  SignalsNoted noted{.leave = leave_noted, .interrupted = interrupts > 0, .save = {}};
  if (const Clock::rep when = save_noted.exchange(0); when != 0) noted.save = Clock::time_point(Clock::duration(when));
  return noted;
}

}  // namespace trireme
