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
#include <chrono>
#include <climits>
#include <ctime>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/io_calls.h"
#include "core/io_growing.h"

namespace trireme {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kFileMode = 0666, kFolderMode = 0777;  // less the umask

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

/// Bytes that a process without special rights can still write there; nothing if the file system does not tell.
std::optional<std::uint64_t> available_bytes(const fs::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

bool is_out_of_space(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

[[noreturn]] void fail_io(int error, std::string_view doing, const fs::path& path) {
  const std::string reason = std::generic_category().message(error);
  fail(ExitCode::io, "io", "cannot {} {}: {}{}", doing, path.string(), reason,
       error == EMFILE   ? "; raise the limit of open files (ulimit -n)"
       : error == ENOSPC ? "; free some space, or remove files: it may have no room for another name (df -i)"
                         : "");
}

/// Reports a failed write; if space was the reason, with the bytes needed and the bytes available.
[[noreturn]] void fail_write(int error, const fs::path& path, std::uint64_t needed) {
  if (!is_out_of_space(error)) fail_io(error, "write", path);
  const std::string reason = std::generic_category().message(error);
  const auto available = available_bytes(folder_of(path));
  fail(ExitCode::io, "io", "cannot write {}: {}; needed {} more bytes, the file system has {} available; {}",
       path.string(), reason, needed, available ? fmt::format("{}", *available) : std::string("an unknown number"),
       error == EFBIG ? "raise the file size limit (ulimit -f)" : "free some space or choose another folder");
}

/// Throws if `path` is a device, a pipe or a socket, which a new file would replace. open() and rename() report a
/// missing folder, and a folder of this name.
void require_replaceable(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) < 0) {
    if (errno == ELOOP) fail_io(errno, "write", path);  // the new file would replace the link
    return;
  }
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return;
  fail(
      ExitCode::io, "io",
      "cannot write {}: it is a device, a pipe or a socket, which a file would replace; expected a file, or a name not "
      "taken yet; change the name",
      path.string());
}

/// Writes all of `bytes`, continuing short writes. Returns the error number, or 0.
int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t& written) {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return io::write(fd, bytes.data(), bytes.size()); });
    if (count < 0) return errno;
    if (count == 0) return EIO;  // not an error to POSIX, but it would repeat forever
    written += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

/// "runs/a/" names the same folder as "runs/a", but a name beside it can only be made from the latter.
fs::path without_trailing_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

/// Removes a folder and its contents if it exists. Returns the error number, or 0.
int remove_tree(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(*entry);
  if (error) return error == std::errc::no_such_file_or_directory ? 0 : error.value();
  for (const fs::directory_entry& entry : entries) {
    const bool is_folder = entry.symlink_status(error).type() == fs::file_type::directory;
    const int failed = is_folder ? remove_tree(entry.path()) : io::unlink(entry.path().c_str()) < 0 ? errno : 0;
    if (failed != 0 && failed != ENOENT) return failed;
  }
  return io::rmdir(folder.c_str()) < 0 && errno != ENOENT ? errno : 0;
}

/// Reports that `folder`, which is `asked` or above it, could not be created.
[[noreturn]] void fail_no_folder(int error, const fs::path& folder, const fs::path& asked) {
  if (error != EEXIST) fail_io(error, "create the folder", asked);
  // Something of this name is there: a file, a link to nothing, or what cannot be looked at.
  struct stat info {};
  const int why = ::stat(folder.c_str(), &info) < 0 ? errno : ENOTDIR;
  if (why == ENOENT)
    fail(ExitCode::io, "io", "cannot create the folder {}: {} is a symbolic link to nothing", asked.string(),
         folder.string());
  const std::string reason = std::generic_category().message(why);
  fail(ExitCode::io, "io", "cannot create the folder {}: {}{}", asked.string(),
       folder == without_trailing_slash(asked) ? "" : folder.string() + ": ", reason);
}

/// Creates a folder and its parents below `root`. `durably`: syncs the folder above, because a power failure that loses
/// a folder's name also loses its contents. An error names `asked`, the folder that the caller asked for.
void create_folder(const fs::path& root, const fs::path& path, bool durably, const fs::path& asked) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return;
  const fs::path folder = without_trailing_slash(path), above = folder_of(folder);
  if (above != folder && above != root) create_folder(root, above, true, asked);
  if (io::mkdir(folder.c_str(), kFolderMode) < 0) {
    const int error = errno;
    if (error == EEXIST && fs::is_directory(path, unknown)) return;  // another process was faster
    fail_no_folder(error, folder, asked);
  }
  if (durably) sync_folder(above);
}

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

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "something else";
}

[[noreturn]] void fail_not_regular(const fs::path& path, mode_t mode) {
  fail(ExitCode::data, "io", "{} is not a regular file but {}; expected a regular file", path.string(), kind_of(mode));
}

/// The size of an open file; closes it and throws if it is not a regular file.
std::uint64_t size_of_regular(int fd, const fs::path& path) {
  struct stat info {};
  const int error = ::fstat(fd, &info) < 0 ? errno : 0;
  if (error == 0 && S_ISREG(info.st_mode)) return static_cast<std::uint64_t>(info.st_size);
  io::close(fd);
  if (error != 0) fail_io(error, "look at", path);
  fail_not_regular(path, info.st_mode);
}

/// Reports that `path` could not be opened. Some kinds of files cannot be opened at all: then this is the reason.
[[noreturn]] void fail_open(int error, std::string_view doing, const fs::path& path) {
  struct stat info {};
  const bool refused_for_kind = error == ENXIO || error == ENODEV;
  if (refused_for_kind && ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail_not_regular(path, info.st_mode);
  fail_io(error, doing, path);
}

/// A name beside `path` that no other process or thread uses. It is shortened if otherwise only `path` itself were
/// short enough for the system.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  const std::string ending = fmt::format(".tmp.{}.{}", ::getpid(), counter.fetch_add(1));
  constexpr std::size_t most_name = NAME_MAX, most_path = PATH_MAX - 1;
  std::string name = path.filename().string();
  const std::size_t folder = path.native().size() - name.size();
  if (name.size() <= most_name && folder + name.size() <= most_path) {
    const std::size_t most = std::min(most_name, most_path - folder);
    std::size_t kept = std::min(name.size(), most > ending.size() ? most - ending.size() : 0);
    while (kept > 0 && kept < name.size() && (static_cast<unsigned char>(name[kept]) & 0xC0U) == 0x80U)
      --kept;  // not inside a character of UTF-8
    name.resize(kept);
  }
  return path.parent_path() / (name + ending);
}

}  // namespace

// Some network file systems cannot sync a folder: that is not an error.
void sync_folder(const fs::path& folder) {
  const int fd = uninterrupted([&] { return io::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) fail_io(errno, "open the folder", folder);
  const int error = uninterrupted([&] { return io::fsync(fd); }) < 0 ? errno : 0;
  io::close(fd);
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail_io(error, "sync the folder", folder);
}

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  fd_ = uninterrupted([&] { return io::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd_ < 0) fail_open(errno, "open", path_);
  size_ = size_of_regular(fd_, path_);
}

InputFile::~InputFile() { io::close(fd_); }

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        uninterrupted([&] { return io::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (count < 0) fail_io(errno, "read", path_);
    if (count == 0)
      fail(ExitCode::data, "io", "{} ends at byte {}; expected {} bytes more; it was cut short", path_.string(), offset,
           bytes.size());
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

// A path that is too long cannot exist.
bool is_there(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error && error != std::errc::filename_too_long) fail_io(error.value(), "look at", path);
  return found;
}

std::vector<std::string> list_folder(const fs::path& folder) {
  std::vector<std::string> names;
  if (!is_there(folder)) return names;
  std::error_code error;
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
  if (io::rename(from.c_str(), to.c_str()) < 0) fail_io(errno, "create the folder", to);
  sync_folder(folder_of(to));
}

void remove_file(const fs::path& path) {
  if (io::unlink(path.c_str()) < 0 && errno != ENOENT) fail_io(errno, "remove", path);
}

void remove_folder(const fs::path& folder) {
  const int error = remove_tree(folder);
  if (error != 0) fail_io(error, "remove the folder", folder);
}

bool claim_standard_streams() {
  const bool output = ::fcntl(STDOUT_FILENO, F_GETFD) >= 0 || errno != EBADF;
  // open() returns the lowest number that is free.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // Without /dev/null, as in a bare container: a folder, to which nothing can be written.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0)
      static_cast<void>(::open("/", O_RDONLY | O_DIRECTORY));
  return output;
}

namespace {

[[noreturn]] void fail_too_large(const fs::path& path, std::string_view size, const ReadLimit& limit) {
  fail(ExitCode::data, "io", "{} has {} bytes; expected at most {} for {}; give the right file, or a smaller one",
       path.string(), size, limit.bytes, limit.what);
}

/// All that is left to read. `size`: as the system says; 0: not known.
std::string read_rest(int fd, const fs::path& path, std::uint64_t size, const ReadLimit& limit) {
  if (size > limit.bytes) fail_too_large(path, fmt::format("{}", size), limit);
  std::string content;
  try {
    content.reserve(size);
    std::array<char, 1 << 14> block;  // a thread may have little stack
    while (true) {
      const ssize_t count = uninterrupted([&] { return io::read(fd, block.data(), block.size()); });
      if (count < 0) fail_io(errno, "read", path);
      if (count == 0) return content;
      content.append(block.data(), static_cast<std::size_t>(count));
      if (content.size() > limit.bytes) fail_too_large(path, fmt::format("more than {}", limit.bytes), limit);
    }
  } catch (const std::bad_alloc&) {
    fail(ExitCode::retryable, "memory", "{} is read whole, and there is no memory for its {} bytes; free some memory",
         path.string(), std::max<std::uint64_t>(size, content.size()));
  }
}

}  // namespace

std::string system_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');  // an iterator over the stream would throw when a read fails
  return text;
}

std::string read_file(const fs::path& path, const ReadLimit& limit) {
  const InputFile file(path);
  return read_rest(file.descriptor(), path, file.size(), limit);
}

std::string read_standard_input(const ReadLimit& limit) { return read_rest(STDIN_FILENO, "standard input", 0, limit); }

FolderMark::FolderMark(fs::path path) : path_(std::move(path)) {
  struct stat info {};
  if (::stat(path_.c_str(), &info) < 0) fail_io(errno, "look at the folder", path_);
  if (!S_ISDIR(info.st_mode)) fail_io(ENOTDIR, "look at the folder", path_);
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

bool FolderMark::still_there() const {
  struct stat info {};
  return ::stat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

void make_temporary_folder(const fs::path& root, const fs::path& path) {
  create_folder(root.empty() ? "." : without_trailing_slash(root), path, false, path);
}

void make_directories(const fs::path& path) { create_folder({}, path, true, path); }

bool make_new_folder(const fs::path& path) {
  const fs::path above = folder_of(without_trailing_slash(path));
  make_directories(above);
  if (io::mkdir(path.c_str(), kFolderMode) < 0) {
    if (errno == EEXIST) return false;
    fail_io(errno, "create the folder", path);
  }
  sync_folder(above);
  return true;
}

void require_own_kind(std::string_view flag, const fs::path& path, const OutputKind& kind) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) == 0) return;
  std::string found(kind.beginning.size(), '\0');
  std::ifstream(path).read(found.data(), static_cast<std::streamsize>(found.size()));
  if (found != kind.beginning)
    fail(ExitCode::usage, flag.substr(2),
         "{} {} exists and is not {}, and would be overwritten; expected a new name, or {} to replace; change {}", flag,
         path.string(), kind.name, kind.name, flag);
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path, bytes.size());
  file.write(bytes);
  file.commit();
}

void write_file(const fs::path& path, std::string_view text) { write_file(path, std::as_bytes(std::span(text))); }

AtomicFile::AtomicFile(fs::path path, std::uint64_t expected_bytes)
    : path_(std::move(path)), temporary_(temporary_name(path_)) {
  require_replaceable(path_);
  const auto available = available_bytes(folder_of(path_));
  if (available && *available < expected_bytes) fail_write(ENOSPC, path_, expected_bytes);
  fd_ = uninterrupted([&] { return io::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode); });
  if (fd_ < 0) fail_io(errno, "write", path_);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  io::close(fd_);
  io::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(fd_ >= 0, "io", "{} was already committed; nothing can be added to it", path_.string());
  const std::uint64_t before = written_;
  const int error = write_all(fd_, bytes, written_);
  if (error != 0) fail_write(error, path_, bytes.size() - (written_ - before));
}

void AtomicFile::commit() {
  require(fd_ >= 0, "io", "{} was already committed", path_.string());
  if (uninterrupted([&] { return io::fsync(fd_); }) < 0) fail_write(errno, path_, written_);
  // From here the destructor must not close again; a failure still removes the temporary file.
  const int fd = std::exchange(fd_, -1);
  int error = io::close(fd) < 0 ? errno : 0;
  if (error == 0 && io::rename(temporary_.c_str(), path_.c_str()) < 0) error = errno;
  if (error != 0) {
    io::unlink(temporary_.c_str());
    fail_io(error, "write", path_);
  }
  sync_folder(folder_of(path_));
}

AtomicFolder::AtomicFolder(const fs::path& path)
    : path_(without_trailing_slash(path)), temporary_(temporary_name(path_)) {
  create_folder({}, temporary_, false, path_);
}

AtomicFolder::~AtomicFolder() {
  // A destructor cannot report errors. A folder that stays behind has a temporary name, which nothing reads.
  if (!committed_) static_cast<void>(remove_tree(temporary_));
}

void AtomicFolder::commit() {
  require(!committed_, "io", "{} was already committed", path_.string());
  sync_folder(temporary_);
  move_folder(temporary_, path_);
  committed_ = true;
}

namespace {

/// Throws, naming the owner of the locked file that `fd` is open on; closes `fd`.
[[noreturn]] void fail_locked(int fd, const fs::path& path) {
  std::array<char, 512> owner{};
  const ssize_t length = io::pread(fd, owner.data(), owner.size() - 1, 0);
  io::close(fd);
  fail(ExitCode::locked, "io", "{} is locked by another process{}; wait for it to end, or stop it", path.string(),
       length > 0
           ? fmt::format(" ({})", std::string(owner.data()).substr(0, std::string(owner.data()).find(", number")))
           : std::string());
}

/// True for what file systems without locks return: some network file systems have them only if mounted so.
bool means_no_locks(int error) { return error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL; }

/// Some file systems have only one of the two kinds of locks. Both end with the open file, so with its process.
int try_lock_once(int fd, int kind) {
  const int status = uninterrupted([&] { return ::flock(fd, kind | LOCK_NB); });
  if (status == 0 || !means_no_locks(errno)) return status;
  struct flock whole {};  // from byte 0 to the end
  whole.l_type = kind == LOCK_EX ? F_WRLCK : F_RDLCK;
  return uninterrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &whole); });
}

/// Tries several times: a process that only checks the lock holds it for a moment.
int try_lock(int fd, int kind) {
  for (int attempt = 0;; ++attempt) {
    const int status = try_lock_once(fd, kind);
    if (status == 0 || errno != EWOULDBLOCK || attempt == 5) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void FileLock::require_free(const fs::path& path) {
  const int fd = uninterrupted([&] { return io::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return;  // it does not exist, or the constructor will report why it cannot be opened
  if (try_lock(fd, LOCK_SH) < 0 && errno == EWOULDBLOCK) fail_locked(fd, path);
  io::close(fd);
}

FileLock::FileLock(const fs::path& path, const std::function<void(const std::string&)>& warn)
    : fd_(uninterrupted([&] { return io::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode); })) {
  if (fd_ < 0) fail_io(errno, "open", path);
  const int error = try_lock(fd_, LOCK_EX) == 0 ? 0 : errno;
  if (error == EWOULDBLOCK) fail_locked(fd_, path);
  if (error != 0 && !means_no_locks(error)) {
    io::close(fd_);
    fail_io(error, "lock", path);
  }
  // The owner's line is only for messages: if the disk is too full to write it, the lock still holds.
  const std::string owner = this_owner();
  std::uint64_t written = 0;
  if (io::ftruncate(fd_, 0) == 0) static_cast<void>(write_all(fd_, std::as_bytes(std::span(owner)), written));
  if (error != 0)
    warn(
        fmt::format("{} is not locked: its file system has no locks ({}); two runs that write to this folder at once "
                    "would damage each other's files: start one at a time, or choose another file system",
                    path.string(), std::generic_category().message(error)));
}

FileLock::~FileLock() { io::close(fd_); }

namespace {

/// The bytes of a file up to the end of its last whole line; found from the end, as a log may be long.
std::uint64_t bytes_of_whole_lines(const InputFile& file) {
  std::string block;
  for (std::uint64_t end = file.size(); end > 0; end -= block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(end, 1 << 16)));
    file.read_at(end - block.size(), std::as_writable_bytes(std::span(block)));
    if (const std::size_t at = block.rfind('\n'); at != std::string::npos) return end - block.size() + at + 1;
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(fs::path path) : path_(std::move(path)) {
  // Only an existing file can end in a torn line: cut it back to the end of its last whole line.
  std::error_code missing;
  if (fs::is_regular_file(path_, missing)) {
    const InputFile file(path_);
    const std::uint64_t whole = bytes_of_whole_lines(file);
    if (whole < file.size() && io::truncate(path_.c_str(), static_cast<off_t>(whole)) < 0)
      fail_io(errno, "shorten", path_);
  }
  // O_NONBLOCK: opening a pipe that nobody reads would wait for ever; with it, open fails with ENXIO.
  constexpr int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  fd_ = uninterrupted([&] { return io::open(path_.c_str(), how, kFileMode); });
  if (fd_ < 0) fail_open(errno, "open for appending", path_);
  static_cast<void>(size_of_regular(fd_, path_));
}

AppendFile::~AppendFile() { io::close(fd_); }

void AppendFile::line(std::string_view text) {
  std::string whole(text);
  whole += '\n';
  record(whole);
}

bool AppendFile::still_there() const {
  struct stat named {
  }, open{};
  return ::stat(path_.c_str(), &named) == 0 && ::fstat(fd_, &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

void AppendFile::record(std::string_view bytes) {
  std::uint64_t written = 0;
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const int error = write_all(fd_, std::as_bytes(std::span(bytes)), written);
  if (error == 0) return;
  // Best effort: if this fails too, opening the file next time repairs it.
  if (before >= 0 && written > 0 && io::ftruncate(fd_, before) < 0) fail_write(error, path_, bytes.size());
  fail_write(error, path_, bytes.size());
}

GrowingFile::GrowingFile(fs::path path, std::uint64_t bytes) : path_(std::move(path)), size_(bytes) {
  constexpr int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;  // does not wait for the reader of a pipe
  fd_ = uninterrupted([&] { return io::open(path_.c_str(), how, kFileMode); });
  if (fd_ < 0) fail_open(errno, "write", path_);
  const std::uint64_t before = size_of_regular(fd_, path_);
  try {
    if (before < bytes)
      fail(ExitCode::data, "io", "{} has {} bytes; expected at least the {} that an earlier start has written",
           path_.string(), before, bytes);
    if (before > bytes && io::ftruncate(fd_, static_cast<off_t>(bytes)) < 0) fail_io(errno, "shorten", path_);
    if (::lseek(fd_, static_cast<off_t>(bytes), SEEK_SET) < 0) fail_io(errno, "write", path_);
  } catch (...) {
    io::close(fd_);
    throw;
  }
}

GrowingFile::~GrowingFile() { io::close(fd_); }

void GrowingFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kGather = 1 << 20;
  gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
  size_ += bytes.size();
  if (gathered_.size() >= kGather) flush();
}

void GrowingFile::flush() {
  std::uint64_t written = 0;
  const int error = write_all(fd_, gathered_, written);
  if (error != 0) fail_write(error, path_, gathered_.size() - written);
  gathered_.clear();
}

void GrowingFile::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  require(offset <= size_ && bytes.size() <= size_ - offset, "io", "{} has {} bytes; {} from byte {} on do not exist",
          path_.string(), size_, bytes.size(), offset);
  flush();
  std::uint64_t written = 0;
  if (::lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) fail_io(errno, "write", path_);
  const int error = write_all(fd_, bytes, written);
  if (error != 0) fail_write(error, path_, bytes.size() - written);
  if (::lseek(fd_, static_cast<off_t>(size_), SEEK_SET) < 0) fail_io(errno, "write", path_);
}

void GrowingFile::sync() {
  flush();
  if (uninterrupted([&] { return io::fsync(fd_); }) < 0) fail_write(errno, path_, 0);
}

}  // namespace trireme
