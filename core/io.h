// Files are written whole or not at all, except logs (AppendFile), which are written line by line, and locks
// (FileLock). This is the only place in the framework that writes to disk. A file is written under a temporary name
// beside its final one, synced, and renamed, so a crash, a full disk or a kill leaves the old file or the new one,
// never a part of one. Failures of the file system are Errors with ExitCode::io that name the path and the system's
// reason; other codes are named at each function.
// Read next: core/io.cpp; parallel/checkpoint for what is kept in such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Opens /dev/null as standard input, output or error if the process was started without one of them. Otherwise the
/// next file that is opened would get its number, and messages would be written into that file. Call this before any
/// file is opened. Returns false if there was no standard output: what is written there will be lost.
bool claim_standard_streams();

/// How much is read of a file that is read whole. A file may be sparse, and have terabytes without using the disk; the
/// standard input may have no end. The limits are far beyond any useful file.
struct ReadLimit {
  std::uint64_t bytes;
  const char* what;  ///< for messages: "a prompt"
};
namespace read_limits {
inline constexpr ReadLimit note{std::uint64_t{1} << 20, "a note about a run"};
inline constexpr ReadLimit configuration{std::uint64_t{16} << 20, "a configuration"};
inline constexpr ReadLimit prompt{std::uint64_t{64} << 20, "a prompt"};
inline constexpr ReadLimit tokenizer{std::uint64_t{256} << 20, "a tokenizer"};
inline constexpr ReadLimit metrics{std::uint64_t{8} << 30, "the metrics of a run"};
inline constexpr ReadLimit other{std::uint64_t{1} << 30, "a file that is read whole"};
}  // namespace read_limits

/// The whole file as bytes. Works on /proc too, where the size is not known beforehand. Throws ExitCode::data, with
/// what it is, for a folder, a pipe, a socket or a device, and with its size for a file beyond the limit;
/// ExitCode::retryable, with its size, if there is no memory for it. Does not block on a pipe.
std::string read_file(const std::filesystem::path& path, const ReadLimit& limit = read_limits::other);

/// The text of a file of the system, such as those below /proc; empty if it cannot be read. What such a file is about
/// may end while it is read, as a thread does.
std::string system_text(const std::filesystem::path& path);
/// Reads standard input until its end, but one byte more than the limit at most. Throws as read_file().
std::string read_standard_input(const ReadLimit& limit);

/// A file that is read at chosen offsets. If the file is cut short, reading throws; with a mapping it would raise a
/// signal.
class InputFile {
 public:
  /// Throws ExitCode::io if it cannot be opened, ExitCode::data if it is not a regular file. Does not block on a pipe.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< when it was opened
  int descriptor() const { return fd_; }        ///< to map the file; this object closes it
  /// Fills `bytes` from `offset` on. Throws ExitCode::data, with the offset, if the file ends earlier.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// Whether this path exists. Throws ExitCode::io if the file system cannot tell; it does not report such a path as
/// absent.
bool is_there(const std::filesystem::path& path);

/// The names in a folder, sorted; none when there is no such folder.
std::vector<std::string> list_folder(const std::filesystem::path& folder);

/// Throws ExitCode::io, with the bytes needed and those available, when `folder`'s file system has less room than that.
void require_space(const std::filesystem::path& folder, std::uint64_t bytes);

/// Renames a folder within its parent folder, durably. `to` must not exist, or must be an empty folder.
void move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
/// Removes a file if it exists.
void remove_file(const std::filesystem::path& path);
/// Removes a folder and its contents if it exists.
void remove_folder(const std::filesystem::path& folder);
/// Makes the names in a folder durable.
void sync_folder(const std::filesystem::path& folder);

/// Identifies a folder by device and inode: its path may later name another folder, or nothing.
class FolderMark {
 public:
  explicit FolderMark(std::filesystem::path path);  ///< throws ExitCode::io when there is no such folder
  bool still_there() const;                         ///< the path still names that folder
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::uint64_t device_ = 0, inode_ = 0;
};

/// Creates the folder and its parents, durably; an existing folder is fine, a file in the way is an error.
void make_directories(const std::filesystem::path& path);
/// Creates the folder and the folders above it, and syncs them to disk. Returns false if the folder existed before.
bool make_new_folder(const std::filesystem::path& path);
/// Creates a folder, and those between it and `root`. `root` must exist, and is not created again if somebody has moved
/// it. The folder itself need not survive a power failure: it will get another name, by move_folder().
void make_temporary_folder(const std::filesystem::path& root, const std::filesystem::path& path);

/// What files of a kind are called, and how they begin.
struct OutputKind {
  std::string_view name, beginning;
};
inline constexpr OutputKind drawing_file{"a drawing", "<svg"}, array_file{"an array", "\x93NUMPY"};
/// A flag that names an output replaces files of its own kind only, never a user's text or a run's own files. Throws
/// ExitCode::usage if `path` has a file that begins otherwise. Call it before the work. `flag`: "--svg".
void require_own_kind(std::string_view flag, const std::filesystem::path& path, const OutputKind& kind);

/// Replaces `path` by these bytes, or leaves it as it was.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

/// A file written piece by piece that appears under its name only at commit(). Without commit() nothing is left behind.
class AtomicFile {
 public:
  /// `expected_bytes`, when known, is checked against the free space before anything is written. If `path` exists, it
  /// must be a file: a device or a pipe would be replaced, not written to.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t expected_bytes = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Each call is at least one system call: gather small pieces first.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Makes the file durable and gives it its name; nothing can be written afterwards.
  void commit();

  std::uint64_t bytes_written() const { return written_; }

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
};

/// A folder of files that appears under its name, complete, at commit(). Without commit() nothing is left behind.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Write the files here before commit(). They must be durable already; write_file makes them so.
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Gives the folder its name. Replaces an empty folder of that name; a folder that is not empty is an error.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool committed_ = false;
};

/// Locks a file while this object lives. Only one object of one process can hold the lock at a time. The lock ends with
/// its process, however the process ends; the file stays.
class FileLock {
 public:
  /// Creates the file if needed and writes the owner into it: host, process, start time, a random number. Throws
  /// ExitCode::locked, naming the owner, if another process or another object holds the lock. If the file system has no
  /// locks, passes what that means to `warn`, and nothing is locked.
  FileLock(const std::filesystem::path& path, const std::function<void(const std::string&)>& warn);
  /// Throws as the constructor does if the lock is held. Changes nothing; any number of processes may check at once.
  static void require_free(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

/// Appends lines to a log such as metrics.jsonl. Each line reaches the file in one piece at once, so that a reader
/// following it sees whole lines; a line cut short by an earlier crash is removed on opening. A log of another format
/// needs a new file every time, because opening an existing one cuts it after its last newline.
class AppendFile {
 public:
  /// Creates the file if needed. Throws ExitCode::data if it is not a regular file. Does not block on a pipe.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends `text` and a newline. On failure the part already written is removed again.
  void line(std::string_view text);
  /// The same without a newline, for a log of another format.
  void record(std::string_view bytes);
  /// False if the file was removed or replaced: what is appended then is lost when the program ends.
  bool still_there() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace trireme
