#include "ops/supervisor/world.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "ops/supervisor/say.h"

namespace trireme::supervisor {
namespace {

constexpr std::size_t kept_output = 1 << 12;     // of what is printed; more is read and dropped
constexpr std::size_t longest_output = 1 << 20;  // a command that prints more is killed
constexpr double quiet_seconds = 5;              // of waiting without a message
constexpr int most_ranks = 1 << 20;

[[noreturn]] void fail_retryable(const char* what) {
  fail(ExitCode::retryable, "run", "--world-command: {}: {}; the machine may be out of processes: start again later",
       what, std::strerror(errno));
}

/// The command in a shell, in a session of its own, with its output in a pipe.
class Shell {
 public:
  Shell(const std::string& command, const SignalQueue& signals) {
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) fail_retryable("no pipe can be made");
    pid_ = ::fork();
    if (pid_ == 0) {  // from here to exec(): only async-signal-safe calls
      ::setsid();
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int nothing = ::open("/dev/null", O_RDONLY);
      if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
      ::dup2(pipe[1], STDOUT_FILENO);
      signals.restore_in_child();
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(pipe[1]);
    output_ = pipe[0];
    if (pid_ < 0) {
      const int error = errno;
      ::close(output_);
      errno = error;
      fail_retryable("no process can be started");
    }
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
  }
  ~Shell() {
    ::kill(-pid_, SIGKILL);  // also processes that it left in the background
    if (!status_) ::waitpid(pid_, nullptr, 0);
    ::close(output_);
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  /// Reads the available output. Returns true once the shell has ended.
  bool look() {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    std::array<char, 4096> buffer{};
    for (ssize_t count = 0; !prints_endlessly() && (count = ::read(output_, buffer.data(), buffer.size())) > 0;) {
      if (text_.size() < kept_output) text_.append(buffer.data(), static_cast<std::size_t>(count));
      printed_ += static_cast<std::size_t>(count);
    }
    return status_.has_value();
  }
  bool prints_endlessly() const { return printed_ > longest_output; }
  int status() const { return status_.value(); }
  const std::string& text() const { return text_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::optional<int> status_;
  std::string text_;
  std::size_t printed_ = 0;
};

/// "8" or "8 nodes": the number that a line begins with.
std::optional<int> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool ends = end == text.data() + text.size() || *end == ' ' || *end == '\t' || *end == '\n';
  if (error != std::errc() || !ends || number < 0 || number > most_ranks) return std::nullopt;
  return number;
}

WorldAnswer answer_of(const Shell& shell) {
  const std::string line = shell.text().substr(0, shell.text().find('\n'));
  const std::optional<int> ranks = leading_number(line);
  const Ending ending = Ending::of_wait_status(shell.status());
  if (ranks && (ending == Ending{} || *ranks == 0)) return {.ranks = ranks, .problem = {}};
  const std::string printed = line.empty() ? "nothing" : fmt::format("'{}'", line.substr(0, 80));
  return {.ranks = {}, .problem = fmt::format("ended with {} and printed {}", to_string(ending), printed)};
}

}  // namespace

WorldAnswer ask_world(const std::string& command, const SignalQueue& signals, double patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Shell shell(command, signals);
  bool save = false, told = false;
  while (!shell.look()) {
    if (shell.prints_endlessly())
      return {.ranks = {},
              .problem = fmt::format("has printed more than {} bytes and has not ended", longest_output),
              .save = save};
    std::array<pollfd, 1> woken = {{{signals.fd(), POLLIN, 0}}};  // SIGCHLD, at the shell's end, wakes it too
    ::poll(woken.data(), woken.size(), 100);
    while (const std::optional<int> signal = signals.next()) {
      if (*signal != SIGUSR1) return {.ranks = {}, .problem = "was interrupted", .leave = true};
      save = true;
    }
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > quiet_seconds && !std::exchange(told, true))
      say("waiting for --world-command; it is given {:g} s", patience);
    if (waited > patience)
      return {.ranks = {}, .problem = fmt::format("has not ended within {:g} s", patience), .save = save};
  }
  shell.look();  // output written just before the end
  WorldAnswer answer = answer_of(shell);
  answer.save = save;
  return answer;
}

}  // namespace trireme::supervisor
