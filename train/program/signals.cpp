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

// A signal is sent to the process, and a handler can be given nothing: these two belong to all its ranks.
using Clock = std::chrono::steady_clock;
std::atomic<bool> leave_noted{false};
std::atomic<Clock::rep> save_noted{0};  // when; 0: not
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<Clock::rep>::is_always_lock_free,
              "a signal handler may not wait for a lock");

void note_leave(int /*signal*/) { leave_noted = true; }
void note_save(int /*signal*/) { save_noted = Clock::now().time_since_epoch().count(); }

std::atomic<int> interrupts{0};
std::atomic<bool> interrupt_told{false};
bool tells_interrupt = true;  // one process of a job; set before the handler is

/// The first asks, the second ends the process as if nobody had caught it: but not before the first, which may be under
/// way on another thread, has said what a second does.
void note_interrupt(int signal) {
  if (interrupts.fetch_add(1) > 0) {
    while (!interrupt_told) {}
    ::signal(signal, SIG_DFL);
    static_cast<void>(::raise(signal));
    return;
  }
  constexpr char text[] = "\ninterrupted: ending after the step under way; interrupt again to end at once\n";
  const int error = errno;
  if (tells_interrupt)
    static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));  // unheard, it is done all the same
  errno = error;
  leave_noted = true;
  interrupt_told = true;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // reads and writes under way go on
  sigemptyset(&action.sa_mask);
  require(::sigaction(signal, &action, nullptr) == 0, "signals", "signal {} cannot be caught", signal);
}

/// The process that started the job, if all is as it should be: the parent, or that of the launcher. Who loses its
/// parent is given another one.
pid_t starter() { return launcher_ranks() > 0 ? parent_of(::getppid()).value_or(0) : ::getppid(); }

std::optional<pid_t> supervisor_was;

bool is_ignored(int signal) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

void catch_signals() {
  handle(SIGTERM, note_leave);
  handle(SIGUSR2, note_leave);
  handle(SIGUSR1, note_save);
  for (const int signal : {SIGHUP, SIGPIPE})
    if (!is_ignored(signal)) handle(signal, note_leave);
  tells_interrupt = launcher_rank() == 0;
  interrupts = 0;
  interrupt_told = false;
  if (!is_ignored(SIGINT)) handle(SIGINT, note_interrupt);
  if (std::getenv(restarts_variable) != nullptr) supervisor_was = starter();
}

bool supervisor_gone() { return supervisor_was && *supervisor_was != starter(); }

SignalsNoted signals_noted() {
  SignalsNoted noted{.leave = leave_noted, .save = {}};
  if (const Clock::rep when = save_noted.exchange(0); when != 0) noted.save = Clock::time_point(Clock::duration(when));
  return noted;
}

}  // namespace trireme
