// Files, whole or absent: the one place of the framework that writes to disk. A file is written under a temporary name
// beside its final one, synced, and renamed, so a crash, a full disk or a kill leaves the old file or the new one,
// never half of either. Every failure is an Error with ExitCode::io that names the path and the system's reason.
// Read next: core/io.cpp; parallel/checkpoint for what is kept in such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The whole file as bytes. Works on pipes and /proc too, where the size is not known beforehand.
std::string read_file(const std::filesystem::path& path);

/// A file that is read at chosen places only, where mapping it would turn a file cut short into a signal.
class InputFile {
 public:
  /// Throws ExitCode::io when it cannot be opened, and ExitCode::data, at once, when it is no regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  ///< when it was opened
  /// Fills `bytes` from `offset` on. Throws ExitCode::data, with the offset, when the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// Whether something has this name. Throws ExitCode::io when the file system does not say: what cannot be looked at is
/// not absent.
bool is_there(const std::filesystem::path& path);

/// The names in a folder, sorted; none when there is no such folder.
std::vector<std::string> list_folder(const std::filesystem::path& folder);

/// Throws ExitCode::io, with the bytes needed and those available, when `folder`'s file system has less room than that.
void require_space(const std::filesystem::path& folder, std::uint64_t bytes);

/// Gives a folder another name beside its old one, durably. Nothing that holds anything may have that name.
void move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
/// Removes a file, or nothing when there is none.
void remove_file(const std::filesystem::path& path);
/// Removes a folder with all it holds.
void remove_folder(const std::filesystem::path& folder);
/// Makes the names in a folder durable.
void sync_folder(const std::filesystem::path& folder);

/// A folder by what it is, not by its name: a name may come to mean another folder, or none.
class FolderMark {
 public:
  explicit FolderMark(std::filesystem::path path);  ///< throws ExitCode::io when there is no such folder
  bool still_there() const;                         ///< the name means that folder
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::uint64_t device_ = 0, inode_ = 0;
};

/// Creates the folder and those above it, durably; an existing folder is fine, a file in the way is an error.
void make_directories(const std::filesystem::path& path);
/// The same, but the folder itself need not survive a power failure: it will get another name, by move_folder().
void make_temporary_folder(const std::filesystem::path& path);

/// Replaces `path` by these bytes, or leaves it as it was.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

/// A file written piece by piece that appears under its name only at commit(). Not committed, it leaves nothing.
class AtomicFile {
 public:
  /// `expected_bytes`, when known, is checked against the free space before anything is written. What is there must be
  /// a file: a device or a pipe would be gone, and not written to.
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

/// A folder of files that appears under its name, complete, at commit(). Not committed, it leaves nothing.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where the files are written until then; they must be durable themselves, as write_file makes them.
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Gives the folder its name. An empty folder of that name is replaced, one that holds something is an error.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool committed_ = false;
};

/// Holds a file locked for as long as it lives: one process, and in it one object, at a time. The lock ends with the
/// process that has it, however that ends; the file stays.
class FileLock {
 public:
  /// Makes the file if there is none, and writes into it who has it: host, process, since when, a random number. Throws
  /// ExitCode::locked, with that line, when another process, or another object, has it.
  explicit FileLock(const std::filesystem::path& path);
  /// Throws as the constructor does when somebody has the lock. Changes nothing; any number may look at once.
  static void require_free(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

/// Appends lines to a log such as metrics.jsonl. Each line reaches the file in one piece at once, so that a reader
/// following it sees whole lines; a line cut short by an earlier crash is removed on opening.
class AppendFile {
 public:
  /// Makes the file if there is none. Throws ExitCode::data, at once, for what is no regular file.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends `text` and a newline. On failure what was written of the line is taken back.
  void line(std::string_view text);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace trireme
