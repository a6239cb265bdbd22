#include "ops/supervisor/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "core/error.h"
#include "train/program/launcher.h"
#include "train/program/screen.h"

namespace trireme::supervisor {
namespace {

namespace fs = std::filesystem;

constexpr std::array user_signals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP};
constexpr std::size_t longest_line = 1 << 16;

int checked(int result, const char* what) {
  if (result < 0)
    fail(ExitCode::retryable, "run", "{}: {}; the machine may be out of processes or memory: start again later", what,
         std::strerror(errno));
  return result;
}

std::optional<pid_t> number(std::string_view text) {
  pid_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The words as execvp() takes them. Built before fork(), because the child must not allocate memory.
std::vector<char*> arguments_of(const Command& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

/// Runs in the child between fork() and exec(): only async-signal-safe calls.
[[noreturn]] void run_in_child(const std::vector<char*>& arguments, int errors, pid_t parent,
                               const SignalQueue& signals) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(static_cast<int>(ExitCode::retryable));  // the parent died before prctl()
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(errors, STDERR_FILENO);
  signals.restore_in_child();
  std::signal(SIGPIPE, SIG_IGN);  // the supervisor decides what to do if nobody reads the output any more
  ::execvp(arguments[0], arguments.data());
  constexpr char text[] = "run: the command cannot be started\n";
  static_cast<void>(!::write(STDERR_FILENO, text, sizeof text - 1));
  ::_exit(127);
}

/// The job numbers of a session folder: the endings of file names such as "smlockseg-1688535041".
std::set<unsigned long> jobs_in(const fs::path& session) {
  std::set<unsigned long> jobs;
  std::error_code unreadable;
  for (const auto& entry : fs::recursive_directory_iterator(session, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("sm")) continue;
    const std::size_t dash = name.find('-');
    if (dash != std::string::npos) jobs.insert(std::strtoul(name.c_str() + dash + 1, nullptr, 10));
  }
  jobs.erase(0);
  return jobs;
}

}  // namespace

SignalQueue::SignalQueue() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGPIPE);  // a closed terminal must not end the supervisor
  for (const int signal : user_signals) sigaddset(&wanted, signal);
  for (const int ignorable : {SIGHUP, SIGINT, SIGTSTP}) {  // the same signals as in train/program/signals.h
    struct sigaction action = {};
    ::sigaction(ignorable, nullptr, &action);
    if (action.sa_handler == SIG_IGN) sigdelset(&wanted, ignorable);  // blocking would queue it
  }
  checked(::sigprocmask(SIG_BLOCK, &wanted, &before_), "signals cannot be blocked");
  fd_ = checked(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC), "signals cannot be read");
}

SignalQueue::~SignalQueue() {
  // A SIGPIPE that is still pending would end the process when it is unblocked, and its exit code would be lost.
  signalfd_siginfo info{};
  while (::read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {}
  ::close(fd_);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalQueue::next() const {
  signalfd_siginfo info{};
  while (::read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    if (std::find(user_signals.begin(), user_signals.end(), static_cast<int>(info.ssi_signo)) != user_signals.end())
      return static_cast<int>(info.ssi_signo);
  return std::nullopt;
}

void SignalQueue::restore_in_child() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

Job::Job(const Command& command, const SignalQueue& signals, Line line) : signals_(signals), line_(std::move(line)) {
  checked(::prctl(PR_SET_CHILD_SUBREAPER, 1), "orphaned processes cannot be adopted");
  std::array<int, 2> pipe{};
  checked(::pipe2(pipe.data(), O_CLOEXEC), "no pipe can be made");
  const std::vector<char*> arguments = arguments_of(command);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) run_in_child(arguments, pipe[1], parent, signals);
  ::close(pipe[1]);
  errors_ = pipe[0];
  if (pid_ < 0) {
    const int error = errno;
    ::close(errors_);
    errno = error;
    checked(pid_, "no process can be started");
  }
  ::fcntl(errors_, F_SETFL, O_NONBLOCK);
  seen_.insert(pid_);
}

Job::~Job() {
  while (!over()) {
    kill_all();
    ::poll(nullptr, 0, 20);
    reap();
  }
  if (errors_ >= 0) ::close(errors_);
}

void Job::wait(double seconds) {
  std::array<pollfd, 2> watched = {{{signals_.fd(), POLLIN, 0}, {errors_, POLLIN, 0}}};
  ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1e3));
  // A process may write and then end: collect ended processes first, then read all remaining output.
  reap();
  read_errors();
  if (!ending_) note_descendants();
}

void Job::read_errors() {
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; errors_ >= 0 && (count = ::read(errors_, buffer.data(), buffer.size())) >= 0;) {
    if (count == 0) {  // all writers have closed it
      ::close(std::exchange(errors_, -1));
      break;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
    if (partial_.empty()) erase_foreign_live_line();  // of the job
    std::fwrite(text.data(), 1, text.size(), stderr);
    partial_ += text;
    for (std::size_t end = 0; (end = partial_.find('\n')) != std::string::npos; partial_.erase(0, end + 1))
      line_(std::string_view(partial_).substr(0, end));
    if (partial_.size() > longest_line) partial_.clear();
  }
}

void Job::reap() {
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0)
    if (ended == pid_) ending_ = Ending::of_wait_status(status);
  alone_ = ended < 0 && errno == ECHILD;
}

void Job::note_descendants() {
  constexpr auto interval = std::chrono::milliseconds(500);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + interval;
  seen_.merge(descendants(::getpid()));
}

void Job::send(int signal) const {
  if (!ending_) ::kill(pid_, signal);
}

void Job::send_all(int signal) const {
  for (const pid_t process : descendants(::getpid())) ::kill(process, signal);
}

void Job::kill_all() const { send_all(SIGKILL); }

std::size_t Job::processes() const { return descendants(::getpid()).size(); }

std::size_t Job::remove_leftovers() const {
  std::error_code unknown;
  const fs::path temporary = fs::temp_directory_path(unknown);
  return remove_open_mpi_leftovers(seen_, temporary.empty() ? "/tmp" : temporary, "/dev/shm");
}

std::set<pid_t> descendants(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator("/proc", unreadable)) {
    const std::optional<pid_t> process = number(entry.path().filename().string());
    if (!process) continue;
    if (const auto parent = parent_of(*process)) children.emplace(*parent, *process);
  }
  std::set<pid_t> found;
  std::vector<pid_t> open = {ancestor};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child)
      if (found.insert(child->second).second) open.push_back(child->second);
  }
  return found;
}

std::size_t remove_open_mpi_leftovers(const std::set<pid_t>& launchers, const fs::path& temporary,
                                      const fs::path& shared_memory) {
  std::size_t removed = 0;
  std::error_code unreadable, gone;
  const std::string user = fmt::format(".{}", ::getuid());
  for (const auto& sessions : fs::directory_iterator(temporary, unreadable)) {
    const std::string name = sessions.path().filename().string();
    if (!name.starts_with("ompi.") || !name.ends_with(user)) continue;
    const std::string host_user = name.substr(sizeof "ompi." - 1);
    for (const pid_t launcher : launchers) {
      const fs::path session = sessions.path() / fmt::format("pid.{}", launcher);
      if (!fs::exists(session, gone)) continue;
      std::set<std::string> prefixes;
      for (const unsigned long job : jobs_in(session)) {
        prefixes.insert(fmt::format("vader_segment.{}.{:x}.", host_user, job));
        prefixes.insert(fmt::format("osc_sm.{}.{:x}.", host_user.substr(0, host_user.size() - user.size()), job));
      }
      for (const auto& segment : fs::directory_iterator(shared_memory, unreadable))
        for (const std::string& prefix : prefixes)
          if (segment.path().filename().string().starts_with(prefix)) removed += fs::remove(segment.path(), gone);
      fs::remove_all(session, gone);
      ++removed;
    }
  }
  return removed;
}

}  // namespace trireme::supervisor
