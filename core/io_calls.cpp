// The system calls of core/io.cpp, and the faults that core/io_faults.h injects into them.
//
// While a fault is armed, operations run one at a time, so that the journal has them in the order in which the system
// got them.
//
// A record of the journal is a line of fields, each ended by a zero byte, and for a write its data:
//   NUMBER CALL HANDLE PATH SECOND-PATH OFFSET SIZE \n DATA
// HANDLE is the number of the operation that opened the file. OFFSET is open's flags, or the new length of a truncate;
// 0 for other calls. The journal has only operations that succeeded, and no reads.
#include "core/io_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <map>
#include <mutex>
#include <system_error>

#include "core/error.h"
#include "core/io_faults.h"

namespace trireme {
namespace {

constexpr const char* variable = "TRIREME_IO_FAULT";
constexpr std::array<std::string_view, 6> kind_names = {"kill", "drop_unsynced", "eio", "enospc", "short", "count"};
constexpr std::array<std::string_view, 12> call_names = {"open",      "read",     "pread",  "write",  "fsync", "close",
                                                         "ftruncate", "truncate", "rename", "unlink", "mkdir", "rmdir"};

struct Handle {
  std::string path;
  std::int64_t opened = 0;  // by which operation
};

struct Armed {
  IoFault fault;
  int journal = -1;
  std::mutex mutex;
  std::int64_t all = 0;      // operations
  std::int64_t counted = 0;  // of them, those that match the fault's call and path
  std::map<int, Handle> open;

  ~Armed() {
    if (fault.kind == IoFault::Kind::count)
      static_cast<void>(std::fprintf(stderr, "trireme: %lld operations on files\n", static_cast<long long>(counted)));
  }
};

std::atomic<Armed*> armed{nullptr};

/// The fault of one operation. half: it reads or writes only half of its bytes.
enum class Injection : std::uint8_t { none, failure, half, half_then_kill };

/// An operation that is about to be made, and all that is known of it.
struct Operation {
  std::string_view call;
  std::string path, second = {};
  int fd = -1;
  std::int64_t offset = 0;
  const void* data = nullptr;
  std::size_t size = 0;
};

bool moves_bytes(std::string_view call) { return call == "read" || call == "pread" || call == "write"; }

/// Counts the operation and returns its fault. A process that is to be killed in a write first writes half of it;
/// before any other operation it is killed here.
Injection injection_for(Armed& a, const Operation& o) {
  ++a.all;
  const IoFault& f = a.fault;
  if (!f.call.empty() && f.call != o.call) return Injection::none;
  if (!f.path.empty() && o.path.find(f.path) == std::string::npos && o.second.find(f.path) == std::string::npos)
    return Injection::none;
  ++a.counted;
  if (a.counted < f.first || a.counted > f.last) return Injection::none;
  switch (f.kind) {
    case IoFault::Kind::kill:
    case IoFault::Kind::drop_unsynced:
      if (o.call == "write") return Injection::half_then_kill;
      ::kill(::getpid(), SIGKILL);
      return Injection::failure;
    case IoFault::Kind::eio:
    case IoFault::Kind::enospc:
      return Injection::failure;
    case IoFault::Kind::shortened:
      return moves_bytes(o.call) ? Injection::half : Injection::none;
    case IoFault::Kind::count:
      break;
  }
  return Injection::none;
}

void append_record(Armed& a, const Operation& o, std::size_t size) {
  if (a.journal < 0 || o.call == "read" || o.call == "pread") return;
  const auto handle = a.open.find(o.fd);
  std::string record = fmt::format("{}{}{}{}{}{}{}{}{}{}{}{}{}{}\n", a.all, '\0', o.call, '\0',
                                   handle == a.open.end() ? 0 : handle->second.opened, '\0', o.path, '\0', o.second,
                                   '\0', o.offset, '\0', size, '\0');
  if (o.call == "write") record.append(static_cast<const char*>(o.data), size);
  for (std::size_t at = 0; at < record.size();) {
    const ssize_t count = ::write(a.journal, record.data() + at, record.size() - at);
    if (count <= 0) std::abort();  // a journal with holes proves nothing
    at += static_cast<std::size_t>(count);
  }
}

/// Performs the operation by call(size), or makes it fail. Returns what the system call returns.
template <class Call>
auto perform(Armed& a, Operation o, const Call& call) {
  using Result = decltype(call(o.size));
  const std::scoped_lock lock(a.mutex);
  if (const auto handle = a.open.find(o.fd); handle != a.open.end()) o.path = handle->second.path;
  const Injection injection = injection_for(a, o);
  if (injection == Injection::failure) {
    if (o.call == "close") static_cast<void>(call(o.size));
    errno = a.fault.kind == IoFault::Kind::enospc ? ENOSPC : EIO;
    return static_cast<Result>(-1);
  }
  const Result result = call(injection == Injection::none ? o.size : (o.size + 1) / 2);
  if (result >= 0) append_record(a, o, moves_bytes(o.call) ? static_cast<std::size_t>(result) : o.size);
  if (injection == Injection::half_then_kill) ::kill(::getpid(), SIGKILL);
  if (result >= 0 && o.call == "open") a.open[static_cast<int>(result)] = {o.path, a.all};
  if (o.call == "close") a.open.erase(o.fd);
  return result;
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  fail(ExitCode::usage, variable,
       "'{}': {}; expected kind=K[,op=N|N-M|N-][,call=NAME][,path=TEXT][,journal=FILE][,rank=R][,start=N|any]; K of "
       "{}, of which kill and drop_unsynced need op; NAME of {}; change {}",
       text, why, fmt::join(kind_names, ", "), fmt::join(call_names, ", "), variable);
}

std::int64_t number(std::string_view text, std::string_view value) {
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < 0)
    refuse(text, fmt::format("'{}' is not a whole number", value));
  return result;
}

void set(IoFault& fault, std::string_view text, std::string_view key, std::string_view value) {
  if (key == "kind") {
    std::size_t i = 0;
    while (i < kind_names.size() && kind_names.at(i) != value) ++i;
    if (i == kind_names.size()) refuse(text, fmt::format("there is no kind '{}'", value));
    fault.kind = static_cast<IoFault::Kind>(i);
  } else if (key == "op") {
    const std::size_t dash = value.find('-');
    fault.first = number(text, value.substr(0, dash));
    fault.last = dash == std::string_view::npos ? fault.first
                 : dash + 1 == value.size()     ? IoFault::no_end
                                                : number(text, value.substr(dash + 1));
  } else if (key == "call") {
    bool known = false;
    for (const std::string_view name : call_names) known = known || name == value;
    if (!known) refuse(text, fmt::format("there is no call '{}'", value));
    fault.call = value;
  } else if (key == "path") {
    fault.path = value;
  } else if (key == "journal") {
    fault.journal = value;
  } else if (key == "rank") {
    fault.rank = static_cast<int>(number(text, value));
  } else if (key == "start") {
    fault.start = value == "any" ? std::nullopt : std::optional(number(text, value));
  } else {
    refuse(text, fmt::format("there is no key '{}'", key));
  }
}

}  // namespace

IoFault parse_io_fault(std::string_view text) {
  IoFault fault;
  bool kind = false, op = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view assignment = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = assignment.find('=');
    if (equals == std::string_view::npos) refuse(text, fmt::format("'{}' has no value", assignment));
    const std::string_view key = assignment.substr(0, equals);
    set(fault, text, key, assignment.substr(equals + 1));
    kind = kind || key == "kind";
    op = op || key == "op";
  }
  if (!kind) refuse(text, "kind= is missing");
  if (!op && (fault.kind == IoFault::Kind::kill || fault.kind == IoFault::Kind::drop_unsynced))
    refuse(text, "op= is missing");
  return fault;
}

void arm_io_faults(const IoFault& fault) {
  static Armed state;
  require(armed.load() == nullptr, "io", "faults are armed already");
  state.fault = fault;
  if (!fault.journal.empty()) {
    state.journal = ::open(fault.journal.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (state.journal < 0)
      fail(ExitCode::usage, variable,
           "the journal {} cannot be opened for writing: {}; expected a file in a folder that can be written to; "
           "change {}",
           fault.journal, std::generic_category().message(errno), variable);
  }
  armed = &state;
}

std::int64_t io_operations() {
  Armed* const a = armed.load();
  if (a == nullptr) return 0;
  const std::scoped_lock lock(a->mutex);
  return a->counted;
}

namespace io {

int open(const char* path, int flags, mode_t mode) {
  const auto call = [=](std::size_t) { return ::open(path, flags, mode); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "open", .path = path, .offset = flags}, call);
}

ssize_t read(int fd, void* bytes, std::size_t count) {
  const auto call = [=](std::size_t size) { return ::read(fd, bytes, size); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(count) : perform(*a, {.call = "read", .path = {}, .fd = fd, .size = count}, call);
}

ssize_t pread(int fd, void* bytes, std::size_t count, off_t offset) {
  const auto call = [=](std::size_t size) { return ::pread(fd, bytes, size, offset); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(count) : perform(*a, {.call = "pread", .path = {}, .fd = fd, .size = count}, call);
}

ssize_t write(int fd, const void* bytes, std::size_t count) {
  const auto call = [=](std::size_t size) { return ::write(fd, bytes, size); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(count)
                      : perform(*a, {.call = "write", .path = {}, .fd = fd, .data = bytes, .size = count}, call);
}

int fsync(int fd) {
  const auto call = [=](std::size_t) { return ::fsync(fd); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "fsync", .path = {}, .fd = fd}, call);
}

int close(int fd) {
  const auto call = [=](std::size_t) { return ::close(fd); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "close", .path = {}, .fd = fd}, call);
}

int ftruncate(int fd, off_t size) {
  const auto call = [=](std::size_t) { return ::ftruncate(fd, size); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "ftruncate", .path = {}, .fd = fd, .offset = size}, call);
}

int truncate(const char* path, off_t size) {
  const auto call = [=](std::size_t) { return ::truncate(path, size); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "truncate", .path = path, .offset = size}, call);
}

int rename(const char* from, const char* to) {
  const auto call = [=](std::size_t) { return ::rename(from, to); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "rename", .path = from, .second = to}, call);
}

int unlink(const char* path) {
  const auto call = [=](std::size_t) { return ::unlink(path); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "unlink", .path = path}, call);
}

int mkdir(const char* path, mode_t mode) {
  const auto call = [=](std::size_t) { return ::mkdir(path, mode); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "mkdir", .path = path}, call);
}

int rmdir(const char* path) {
  const auto call = [=](std::size_t) { return ::rmdir(path); };
  Armed* const a = armed.load(std::memory_order_acquire);
  return a == nullptr ? call(0) : perform(*a, {.call = "rmdir", .path = path}, call);
}

}  // namespace io
}  // namespace trireme
