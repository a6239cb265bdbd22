#include "train/program/removed_on_signal.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/error.h"

namespace trireme {
namespace {

// A handler takes no context. It may call only functions that are safe there: neither malloc nor readdir.
std::array<char, PATH_MAX> watched{};
std::string_view told_when_kept;

/// An entry of a folder, as the system call getdents64 writes it; the name follows, with a zero at its end.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t bytes;
  std::uint8_t type;
};
constexpr std::size_t name_at = offsetof(Entry, type) + 1;

/// Removes the files in the folder that `fd` is open on, as far as one call lists them. Returns their number.
int remove_listed(int fd) {
  alignas(Entry) std::array<char, 4096> entries;
  int removed = 0;
  ::lseek(fd, 0, SEEK_SET);
  const long bytes = ::syscall(SYS_getdents64, fd, entries.data(), entries.size());
  for (long at = 0; at < bytes;) {
    Entry entry{};
    std::memcpy(&entry, entries.data() + at, name_at);
    if (::unlinkat(fd, entries.data() + at + name_at, 0) == 0) ++removed;  // fails for "." and ".."
    at += entry.bytes;
  }
  return removed;
}

[[noreturn]] void leave(std::string_view told) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;  // which may show a bar of progress, and ^C behind it
  if (terminal) static_cast<void>(!::write(STDERR_FILENO, "\n", 1));
  static_cast<void>(!::write(STDERR_FILENO, told.data(), told.size()));
  ::_exit(static_cast<int>(ExitCode::retryable));
}

void keep_and_leave(int /*signal*/) { leave(told_when_kept); }

void remove_and_leave(int /*signal*/) {
  const int fd = ::open(watched.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd >= 0 && remove_listed(fd) > 0) {}
  ::rmdir(watched.data());
  leave("trireme: told to stop before the folder was complete: nothing of it is left\n");
}

}  // namespace

RemovedOnSignal::RemovedOnSignal() {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU}) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    before_.emplace_back(signal, action);
    sigaddset(&signals_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
}

RemovedOnSignal::~RemovedOnSignal() {
  for (const auto& [signal, action] : before_) ::sigaction(signal, &action, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void RemovedOnSignal::watch(const std::filesystem::path& folder) {
  const std::string path = folder.string();
  require(path.size() < watched.size(), "signals", "{} is too long to be watched", path);
  watched.fill('\0');
  std::copy(path.begin(), path.end(), watched.begin());
  handle(remove_and_leave);
}

void RemovedOnSignal::keep(std::string_view told) {
  hold();
  told_when_kept = told;
  handle(keep_and_leave);
}

void RemovedOnSignal::handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_mask = signals_;
  for (const auto& [signal, before] : before_) ::sigaction(signal, &action, nullptr);
  ::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

void RemovedOnSignal::hold() { ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr); }

}  // namespace trireme
