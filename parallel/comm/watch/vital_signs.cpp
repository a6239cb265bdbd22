#include "parallel/comm/watch/vital_signs.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/io.h"

namespace trireme::watch {
namespace {

std::uint64_t process_space() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

/// The rest of a stat file's text after the name in parentheses, which may contain any character: "S 1 2 3 ...".
std::string after_name(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? "" : stat.substr(name_end + 2);
}

}  // namespace

ThreadId this_thread() {
  static const std::uint64_t space = process_space();
  return {getpid(), syscall(SYS_gettid), space};
}

VitalSigns vital_signs(const ThreadId& id) {
  if (id.space != this_thread().space || id.process == 0) return {};
  const std::string folder = fmt::format("/proc/{}/task/{}/", id.process, id.thread);
  const std::string fields = after_name(system_text(folder + "stat"));
  VitalSigns found;
  if (fields.empty()) {
    found.state = std::filesystem::exists("/proc/self/stat") ? '\0' : '?';
    return found;
  }
  found.state = fields.front();
  found.processor_time = std::strtoull(system_text(folder + "schedstat").c_str(), nullptr, 10);
  if (found.state == 'Z') found.signal = std::atoi(fields.c_str() + fields.rfind(' ') + 1) & 0x7f;
  return found;
}

std::int64_t waited_for_processor(const char* schedstat) {  // "ran waited times", in nanoseconds
  char* end = nullptr;
  static_cast<void>(std::strtoll(schedstat, &end, 10));
  return std::strtoll(end, nullptr, 10);
}

std::int64_t waited_for_processor() {
  // Open for as long as the thread lives: a phase reads it twice.
  struct File {
    int fd = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    File() = default;
    ~File() { ::close(fd); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
  };
  thread_local const File file;
  std::array<char, 64> text{};
  return ::pread(file.fd, text.data(), text.size() - 1, 0) > 0 ? waited_for_processor(text.data()) : 0;
}

bool waits_for_disk(std::int64_t process) {
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    const std::string fields = after_name(system_text(thread.path().string() + "/stat"));
    if (!fields.empty() && fields.front() == 'D') return true;
  }
  return false;
}

}  // namespace trireme::watch
