// The system calls behind core/io.h. POSIX calls rather than streams: a stream cannot sync, nor say why it failed.
#include "core/io.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kFileMode = 0666;  // less the umask

/// Repeats a call that a signal interrupted.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

/// Bytes that a process without special rights can still write there, where the file system tells.
std::optional<std::uint64_t> available_bytes(const fs::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

bool is_out_of_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

[[noreturn]] void fail_io(int error, std::string_view doing, const fs::path& path) {
  const std::string reason = std::generic_category().message(error);
  fail(ExitCode::io, "io", "cannot {} {}: {}", doing, path.string(), reason);
}

/// A failed write: when space was the reason, says how much was wanted and how much there is.
[[noreturn]] void fail_write(int error, const fs::path& path, std::uint64_t needed) {
  if (!is_out_of_space(error)) fail_io(error, "write", path);
  const std::string reason = std::generic_category().message(error);
  const auto available = available_bytes(folder_of(path));
  fail(ExitCode::io, "io", "cannot write {}: {}; needed {} more bytes, the file system has {} available; {}",
       path.string(), reason, needed, available ? fmt::format("{}", *available) : std::string("an unknown number"),
       error == EFBIG ? "raise the file size limit (ulimit -f)" : "free some space or choose another folder");
}

/// Writes all of `bytes`, continuing short writes. Returns the error number, or 0.
int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t& written) {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (count < 0) return errno;
    if (count == 0) return EIO;  // not an error to POSIX, but it would repeat forever
    written += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

/// "runs/a/" names the same folder as "runs/a", but a name beside it can only be made from the latter.
fs::path without_trailing_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

/// "host a.example, process 123, since 2026-01-31 12:00:00 UTC, number 0123456789abcdef".
std::string this_owner() {
  std::array<char, 256> host{}, time{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::strftime(time.data(), time.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  std::random_device random;
  return fmt::format("host {}, process {}, since {}, number {:08x}{:08x}\n", host.data(), ::getpid(), time.data(),
                     random(), random());
}

/// A name beside `path` that no other process or thread uses.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  fs::path name = path;
  name += fmt::format(".tmp.{}.{}", ::getpid(), counter.fetch_add(1));
  return name;
}

}  // namespace

// Some network file systems cannot sync a folder: that is not an error.
void sync_folder(const fs::path& folder) {
  const int fd = uninterrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) fail_io(errno, "open the folder", folder);
  const int error = uninterrupted([&] { return ::fsync(fd); }) < 0 ? errno : 0;
  ::close(fd);
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail_io(error, "sync the folder", folder);
}

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  fd_ = uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd_ < 0) fail_io(errno, "open", path_);
  struct stat info {};
  if (::fstat(fd_, &info) < 0) {
    const int error = errno;
    ::close(fd_);
    fail_io(error, "read", path_);
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        uninterrupted([&] { return ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (count < 0) fail_io(errno, "read", path_);
    if (count == 0)
      fail(ExitCode::data, "io", "{} ends at byte {}; expected {} bytes more; it was cut short", path_.string(), offset,
           bytes.size());
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::vector<std::string> list_folder(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(folder, error)) return names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) fail_io(error.value(), "read the folder", folder);
  std::sort(names.begin(), names.end());
  return names;
}

void require_space(const fs::path& folder, std::uint64_t bytes) {
  const auto available = available_bytes(folder);
  if (available && *available < bytes) fail_write(ENOSPC, folder / "", bytes);
}

void move_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) < 0) fail_io(errno, "create the folder", to);
  sync_folder(folder_of(to));
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail_io(error.value(), "remove", path);
}

void remove_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) fail_io(error.value(), "remove the folder", folder);
}

std::string read_file(const fs::path& path) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) fail_io(errno, "open", path);
  std::string content;
  struct stat info {};
  if (::fstat(fd, &info) == 0 && info.st_size > 0) content.reserve(static_cast<std::size_t>(info.st_size));
  std::array<char, 1 << 16> chunk;
  while (true) {
    const ssize_t count = uninterrupted([&] { return ::read(fd, chunk.data(), chunk.size()); });
    const int error = errno;
    if (count <= 0) {
      ::close(fd);
      if (count < 0) fail_io(error, "read", path);
      return content;
    }
    content.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_io(error.value(), "create the folder", path);
  // create_directories is content with any existing file of that name.
  if (!fs::is_directory(path, error)) fail_io(ENOTDIR, "create the folder", path);
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path, bytes.size());
  file.write(bytes);
  file.commit();
}

void write_file(const fs::path& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

AtomicFile::AtomicFile(fs::path path, std::uint64_t expected_bytes)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  const auto available = available_bytes(folder_of(path_));
  if (available && *available < expected_bytes) fail_write(ENOSPC, path_, expected_bytes);
  fd_ = uninterrupted([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode); });
  if (fd_ < 0) fail_io(errno, "write", path_);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(fd_ >= 0, "io", "{} was already committed; nothing can be added to it", path_.string());
  const std::uint64_t before = written_;
  const int error = write_all(fd_, bytes, written_);
  if (error != 0) fail_write(error, path_, bytes.size() - (written_ - before));
}

void AtomicFile::commit() {
  require(fd_ >= 0, "io", "{} was already committed", path_.string());
  if (uninterrupted([&] { return ::fsync(fd_); }) < 0) fail_write(errno, path_, written_);
  // From here the destructor must not close again; a failure still removes the temporary file.
  const int fd = std::exchange(fd_, -1);
  int error = ::close(fd) < 0 ? errno : 0;
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) < 0) error = errno;
  if (error != 0) {
    ::unlink(temporary_.c_str());
    fail_io(error, "write", path_);
  }
  sync_folder(folder_of(path_));
}

AtomicFolder::AtomicFolder(const fs::path& path)
    : path_(without_trailing_slash(path)), temporary_(temporary_name(path_)) {
  make_directories(temporary_);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;  // a destructor cannot report, and what stays behind has a name that nothing reads
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  require(!committed_, "io", "{} was already committed", path_.string());
  sync_folder(temporary_);
  move_folder(temporary_, path_);
  committed_ = true;
}

FileLock::FileLock(const fs::path& path)
    : fd_(uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode); })) {
  if (fd_ < 0) fail_io(errno, "open", path);
  if (uninterrupted([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) {
    // Who has the lock is for messages only: a disk too full for a line does not take it away.
    const std::string owner = this_owner();
    std::uint64_t written = 0;
    if (::ftruncate(fd_, 0) == 0) static_cast<void>(write_all(fd_, std::as_bytes(std::span(owner)), written));
    return;
  }
  const int error = errno;
  std::array<char, 512> owner{};
  const ssize_t length = ::pread(fd_, owner.data(), owner.size() - 1, 0);
  ::close(fd_);
  if (error != EWOULDBLOCK) fail_io(error, "lock", path);
  fail(ExitCode::locked, "io", "{} is locked by another process{}; wait for it to end, or stop it", path.string(),
       length > 0
           ? fmt::format(" ({})", std::string(owner.data()).substr(0, std::string(owner.data()).find(", number")))
           : std::string());
}

FileLock::~FileLock() { ::close(fd_); }

AppendFile::AppendFile(fs::path path) : path_(std::move(path)) {
  // Only an existing file can end in a torn line: cut back to the end of its last whole one.
  std::error_code missing;
  if (fs::is_regular_file(path_, missing)) {
    const std::string content = read_file(path_);
    const std::size_t whole = content.rfind('\n') + 1;  // npos + 1 = 0: no whole line at all
    if (whole < content.size() && ::truncate(path_.c_str(), static_cast<off_t>(whole)) < 0)
      fail_io(errno, "shorten", path_);
  }
  fd_ = uninterrupted([&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kFileMode); });
  if (fd_ < 0) fail_io(errno, "open for appending", path_);
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::line(std::string_view text) {
  std::string whole(text);
  whole += '\n';
  std::uint64_t written = 0;
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const int error = write_all(fd_, std::as_bytes(std::span(whole)), written);
  if (error == 0) return;
  // Best effort: if this fails too, opening the file next time repairs it.
  if (before >= 0 && written > 0 && ::ftruncate(fd_, before) < 0) fail_write(error, path_, whole.size());
  fail_write(error, path_, whole.size());
}

}  // namespace trireme
