#include "train/program/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

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

std::atomic<bool> training{false};
// Set before the handlers are installed. Only one process of a job prints.
bool tells = true, launched = false;

/// Nothing can be saved yet, and what goes on at the start, such as reading data, may take long. A launcher sends
/// SIGTERM when another rank has failed: that rank has printed why.
void leave_before_training(int signal) {
  constexpr char text[] = "trireme: told to stop before training began; nothing was lost, and nothing was saved\n";
  if (tells && !(launched && signal == SIGTERM))
    static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));  // a failure does not matter
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
    ::signal(signal, SIG_DFL);
    static_cast<void>(::raise(signal));
    return;
  }
  constexpr char text[] = "\ninterrupted: ending after the step under way; interrupt again to end at once\n";
  const int error = errno;
  if (tells) static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));  // a failure does not matter
  errno = error;
  leave_noted = true;
  interrupt_told = true;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // interrupted reads and writes continue
  sigemptyset(&action.sa_mask);
  require(::sigaction(signal, &action, nullptr) == 0, "signals", "signal {} cannot be caught", signal);
}

/// The process that started the job, if it is still alive: the parent, or the launcher's parent. An orphaned process
/// gets a different parent.
pid_t starter() { return launcher_ranks() > 0 ? parent_of(::getppid()).value_or(0) : ::getppid(); }

std::optional<pid_t> supervisor_was;

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
  if (std::getenv(restarts_variable) != nullptr) supervisor_was = starter();
}

void catch_broken_pipes() {
  if (!is_ignored(SIGPIPE)) handle(SIGPIPE, note_leave);
}

void note_training_begins() { training = true; }

bool supervisor_gone() { return supervisor_was && *supervisor_was != starter(); }

SignalsNoted signals_noted() {
  SignalsNoted noted{.leave = leave_noted, .save = {}};
  if (const Clock::rep when = save_noted.exchange(0); when != 0) noted.save = Clock::time_point(Clock::duration(when));
  return noted;
}

}  // namespace trireme
