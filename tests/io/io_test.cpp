// Files are complete or absent: what is left behind after success, after an abandoned write, and after an error of the
// system.
#include "core/io.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace fs = std::filesystem;
using namespace trireme;
using namespace trireme::testing;

namespace {

/// What the next locks fail with, as on a file system without them; 0: they work.
int flock_error = 0, fcntl_error = 0;

int system_result(int error, long number, int fd, int command, void* argument) {
  if (error == 0) return static_cast<int>(::syscall(number, fd, command, argument));
  errno = error;
  return -1;
}

}  // namespace

// In place of those of the C library.
int flock(int fd, int kind) noexcept { return system_result(flock_error, SYS_flock, fd, kind, nullptr); }
int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return system_result(command == F_OFD_SETLK ? fcntl_error : 0, SYS_fcntl, fd, command, argument);
}

namespace {

void no_warning(const std::string& text) { FAIL_CHECK(text); }

std::size_t entries_of(const TempFolder& folder) {
  const fs::directory_iterator entries(folder.path());
  return static_cast<std::size_t>(std::distance(entries, fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a file of the system that cannot be read is empty: nothing is thrown") {
  CHECK(contains(system_text("/proc/self/stat"), ")"));
  CHECK(system_text("/proc/self").empty());  // opened, and then the read fails, as that of a thread which has ended
  CHECK(system_text("/proc/self/nothing").empty());
}

TEST_CASE("write_file: what is read back is what was written, and nothing else is left") {
  const TempFolder folder;
  const fs::path file = folder / "a.bin";
  std::string bytes(300'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131);
  write_file(file, bytes);
  CHECK(read_file(file) == bytes);
  write_file(file, "short");  // replaces, does not overlay
  CHECK(read_file(file) == "short");
  write_file(file, "");
  CHECK(read_file(file).empty());
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("AtomicFile: the name changes its content only at commit") {
  const TempFolder folder;
  const fs::path file = folder / "weights";
  write_file(file, "old");
  {
    AtomicFile replacement(file);
    replacement.write("new ");
    replacement.write("content");
    CHECK(replacement.bytes_written() == 11);
    CHECK(read_file(file) == "old");
    replacement.commit();
    CHECK(read_file(file) == "new content");
    CHECK_THROWS_AS(replacement.write("more"), Error);
    CHECK_THROWS_AS(replacement.commit(), Error);
  }
  CHECK(read_file(file) == "new content");
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("AtomicFile: a device or a pipe is not replaced by a file") {
  const TempFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(write_file(pipe, "text"), doctest::Contains("a device, a pipe or a socket"), Error);
  CHECK(fs::is_fifo(pipe));
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("AtomicFile: without a commit the old file stays and the temporary one goes") {
  const TempFolder folder;
  const fs::path file = folder / "weights";
  write_file(file, "old");
  {
    AtomicFile abandoned(file);
    abandoned.write("half");
    CHECK(entries_of(folder) == 2);
  }
  CHECK(read_file(file) == "old");
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("AtomicFile: two writers of one name do not mix") {
  const TempFolder folder;
  const fs::path file = folder / "weights";
  AtomicFile first(file), second(file);
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  CHECK(read_file(file) == "first");
}

TEST_CASE("AtomicFile: a refused write names the path, the bytes needed and available, and keeps the old file") {
  const TempFolder folder;
  const fs::path file = folder / "weights";
  write_file(file, "old");
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = error_of([&] { write_file(file, std::string(5000, 'x')); }, ExitCode::io);
  }
  CAPTURE(message);
  CHECK(contains(message, file.string()));
  CHECK(contains(message, "needed 4000 more bytes"));  // 1000 of them fitted
  CHECK(contains(message, "available"));
  CHECK(read_file(file) == "old");
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("AtomicFile: more than the disk holds is refused before anything is written") {
  const TempFolder folder;
  const fs::path file = folder / "weights";
  const std::string message = error_of([&] { const AtomicFile huge(file, std::uint64_t{1} << 62); }, ExitCode::io);
  CHECK(contains(message, "needed 4611686018427387904 more bytes"));
  CHECK(entries_of(folder) == 0);
}

TEST_CASE("files: each failure names the path and the system's reason") {
  const TempFolder folder;
  const fs::path absent = folder / "absent", inside = absent / "file";
  const std::string reason = "No such file or directory";
  for (const std::string& message :
       {error_of([&] { read_file(absent); }, ExitCode::io), error_of([&] { write_file(inside, "x"); }, ExitCode::io),
        error_of([&] { const AppendFile log(inside); }, ExitCode::io)}) {
    CAPTURE(message);
    CHECK(contains(message, absent.string()));
    CHECK(contains(message, reason));
  }
  fs::create_directory(folder / "taken");
  CHECK(contains(error_of([&] { write_file(folder / "taken", "x"); }, ExitCode::io), "Is a directory"));
  CHECK(entries_of(folder) == 1);
}

TEST_CASE("make_directories: creates parents, accepts what exists, refuses a file in the way") {
  const TempFolder folder;
  make_directories(folder / "a" / "b" / "c");
  make_directories(folder / "a" / "b" / "c");
  CHECK(fs::is_directory(folder / "a" / "b" / "c"));
  write_file(folder / "file", "x");
  CHECK(contains(error_of([&] { make_directories(folder / "file"); }, ExitCode::io), "Not a directory"));
  CHECK(contains(error_of([&] { make_directories(folder / "file" / "below"); }, ExitCode::io), "Not a directory"));
}

TEST_CASE("make_temporary_folder: creates folders below the root, but not the root") {
  const TempFolder folder;
  make_temporary_folder(folder.path(), folder / "a" / "b");
  make_temporary_folder(folder / "a/", folder / "a" / "b" / "c");
  CHECK(fs::is_directory(folder / "a/b/c"));
  for (const char* path : {"gone/b", "gone/b/c"})
    CHECK(contains(error_of([&] { make_temporary_folder(folder / "gone", folder / path); }, ExitCode::io),
                   "No such file or directory"));
  CHECK_FALSE(fs::exists(folder / "gone"));
}

TEST_CASE("AtomicFolder: appears complete at commit, or not at all") {
  const TempFolder folder;
  for (const char* spelling : {"shards", "slashed/"}) {
    const fs::path path = folder / spelling;
    {
      const AtomicFolder abandoned(path);
      write_file(abandoned.temporary() / "a", "x");
      CHECK_FALSE(fs::exists(path));
    }
    AtomicFolder kept(path);
    write_file(kept.temporary() / "a", "x");
    kept.commit();
    CHECK(read_file(path / "a") == "x");
    CHECK_THROWS_AS(kept.commit(), Error);
    const std::string message = error_of([&] { AtomicFolder(path).commit(); }, ExitCode::io);  // it holds "a"
    CHECK(contains(message, "Directory not empty"));
  }
  CHECK(entries_of(folder) == 2);
}

TEST_CASE("AppendFile: adds whole lines, readable at once, to what is there") {
  const TempFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  {
    AppendFile log(file);
    log.line("{\"step\": 1}");
    CHECK(read_file(file) == "{\"step\": 1}\n");
  }
  AppendFile log(file);
  log.line("{\"step\": 2}");
  CHECK(read_file(file) == "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST_CASE("AppendFile: a line torn by a crash is removed on opening") {
  const TempFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  write_file(file, "whole\ntor");
  AppendFile(file).line("next");
  CHECK(read_file(file) == "whole\nnext\n");
  write_file(file, "tor");
  AppendFile(file).line("next");
  CHECK(read_file(file) == "next\n");
}

TEST_CASE("AppendFile: anything but a regular file is refused at once, also a pipe, with or without a reader") {
  const TempFolder folder;
  const fs::path pipe = folder / "metrics.jsonl";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto refusal = [](const fs::path& path) { return failure([&] { AppendFile(path).line("lost"); }); };
  const std::string expected = "65 trireme: [io] {} is not a regular file but a {}; expected a regular file";
  CHECK(refusal(pipe) == fmt::format(fmt::runtime(expected), pipe.string(), "pipe"));
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  CHECK(refusal(pipe) == fmt::format(fmt::runtime(expected), pipe.string(), "pipe"));
  char byte = 0;
  CHECK(::read(reader, &byte, 1) == 0);  // nothing was written to it
  ::close(reader);
  CHECK(refusal("/dev/null") == fmt::format(fmt::runtime(expected), "/dev/null", "device"));
}

TEST_CASE("FileLock: a pipe in the place of a lock does not block") {
  const TempFolder folder;
  const fs::path pipe = folder / ".lock";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  FileLock::require_free(pipe);
  const FileLock lock(pipe, no_warning);
  CHECK_THROWS_AS(FileLock::require_free(pipe), Error);
}

TEST_CASE("AppendFile: a line that does not fit is taken back whole") {
  const TempFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  AppendFile log(file);
  log.line("first");
  std::string message;
  {
    const FileSizeLimit limit(50);
    message = error_of([&] { log.line(std::string(100, 'x')); }, ExitCode::io);
  }
  CHECK(contains(message, file.string()));
  CHECK(read_file(file) == "first\n");
  log.line("second");
  CHECK(read_file(file) == "first\nsecond\n");
}

TEST_CASE("InputFile: reads where it is asked to, and says where a file ends too early") {
  const TempFolder folder;
  const fs::path file = folder / "file";
  write_file(file, "0123456789");
  const InputFile input(file);
  CHECK(input.size() == 10);
  std::string bytes(4, ' ');
  input.read_at(3, std::as_writable_bytes(std::span(bytes)));
  CHECK(bytes == "3456");
  const std::string message =
      error_of([&] { input.read_at(8, std::as_writable_bytes(std::span(bytes))); }, ExitCode::data);
  CHECK(contains(message, file.string() + " ends at byte 10; expected 2 bytes more"));
  CHECK(contains(error_of([&] { const InputFile absent(folder / "absent"); }, ExitCode::io), "No such file"));
}

TEST_CASE("anything but a regular file is refused at once, with what it is") {
  const TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = (folder / "socket").string();
  REQUIRE(name.size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, name.c_str());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::vector<std::pair<fs::path, std::string>> others = {
      {folder.path(), "a folder"}, {folder / "pipe", "a pipe"}, {name, "a socket"}, {"/dev/zero", "a device"}};
  for (const auto& [path, kind] : others) {
    CAPTURE(kind);
    const std::string expected = fmt::format("{} is not a regular file but {}", path.string(), kind);
    CHECK(contains(error_of([&] { const InputFile input(path); }, ExitCode::data), expected));
    CHECK(contains(error_of([&] { read_file(path); }, ExitCode::data), expected));
  }
  ::close(socket);
}

TEST_CASE("folders are listed in order, moved, removed, and asked for room") {
  const TempFolder folder;
  CHECK(list_folder(folder / "absent").empty());
  for (const char* name : {"b", "a", "c"}) make_directories(folder / name);
  write_file(folder / "b" / "file", "x");
  CHECK(list_folder(folder.path()) == std::vector<std::string>{"a", "b", "c"});
  CHECK(contains(error_of([&] { move_folder(folder / "a", folder / "b"); }, ExitCode::io), "Directory not empty"));
  move_folder(folder / "b", folder / "d");
  CHECK(read_file(folder / "d" / "file") == "x");
  remove_folder(folder / "d");
  remove_file(folder / "nothing");
  CHECK(list_folder(folder.path()) == std::vector<std::string>{"a", "c"});
  CHECK(contains(error_of([&] { require_space(folder.path(), std::uint64_t{1} << 62); }, ExitCode::io),
                 "needed 4611686018427387904"));
}

TEST_CASE("FileLock: the second process is told who holds the lock") {
  const TempFolder folder;
  const fs::path file = folder / "lock";
  const auto second = [&] { const FileLock lock(file, no_warning); };
  {
    const FileLock lock(file, no_warning);
    CHECK(contains(error_of(second, ExitCode::locked), fmt::format(", process {}, since 20", ::getpid())));
    CHECK(contains(read_file(file), ", number "));
  }
  CHECK(failure(second) == "nothing");
}

TEST_CASE("FileLock: a file system without flock is locked by fcntl, and one without locks is warned of") {
  const TempFolder folder;
  const fs::path file = folder / "lock";
  for (const int error : {ENOSYS, ENOLCK, ENOTSUP, EOPNOTSUPP, EINVAL}) {
    CAPTURE(error);
    flock_error = error;
    {
      const FileLock lock(file, no_warning);
      const std::string owner = fmt::format(", process {}, since 20", ::getpid());
      CHECK(contains(error_of([&] { const FileLock second(file, no_warning); }, ExitCode::locked), owner));
      CHECK(contains(error_of([&] { FileLock::require_free(file); }, ExitCode::locked), owner));
    }
    FileLock::require_free(file);
    fcntl_error = error;
    FileLock::require_free(file);
    std::vector<std::string> warnings;
    {
      const FileLock lock(file, [&](const std::string& text) { warnings.push_back(text); });
    }
    CHECK(warnings == std::vector{fmt::format(
                          "{} is not locked: its file system has no locks ({}); two runs that write to this folder at "
                          "once would damage each other's files: start one at a time, or choose another file system",
                          file.string(), std::strerror(error))});
    fcntl_error = 0;
  }
  flock_error = EIO;
  CHECK(
      contains(error_of([&] { const FileLock lock(file, no_warning); }, ExitCode::io), "cannot lock " + file.string()));
  flock_error = 0;
}

TEST_CASE("read_file: a file beyond its limit is refused with its size, and one without a size is not read further") {
  const TempFolder folder;
  write_file(folder / "sparse", "x");
  fs::resize_file(folder / "sparse", std::uintmax_t{1} << 42);
  const ReadLimit limit{1000, "a test"};
  const std::string file = (folder / "sparse").string();
  CHECK(error_of([&] { read_file(folder / "sparse", limit); }, ExitCode::data) ==
        "trireme: [io] " + file +
            " has 4398046511104 bytes; expected at most 1000 for a test; give the right file, or "
            "a smaller one");
  CHECK(contains(error_of([&] { read_file(folder / "sparse"); }, ExitCode::data), "expected at most 1073741824 for"));
  write_file(folder / "small", std::string(1000, 'x'));
  CHECK(read_file(folder / "small", limit).size() == 1000);
  // /proc does not say how large its files are.
  CHECK(contains(error_of(
                     [&] {
                       read_file("/proc/meminfo", {100, "a test"});
                     },
                     ExitCode::data),
                 "/proc/meminfo has more than 100 bytes; expected at most 100 for a test"));
}

TEST_CASE("files and folders may have names as long as the system allows") {
  const TempFolder folder;
  const std::string longest(255, 'n'), letters = std::string(253, 'n') + "\xC3\xA9";  // ends in one character of UTF-8
  for (const std::string& name : {longest, letters}) {
    write_file(folder / name, "x");
    CHECK(read_file(folder / name) == "x");
    AtomicFile temporary(folder / name);
    for (const std::string& found : list_folder(folder.path())) {
      CAPTURE(found);
      CHECK((found == name || found.find("\xC3.") == std::string::npos));
    }
  }
  fs::remove(folder / longest);
  AtomicFolder made(folder / longest);
  made.commit();
  CHECK(fs::is_directory(folder / longest));
  CHECK(entries_of(folder) == 2);
  for (const fs::path& path : {folder / (longest + "n"), folder / std::string(250, 'd') / (longest + "n")})
    CHECK(contains(error_of([&] { write_file(path, "x"); }, ExitCode::io), "cannot write " + path.string() + ": "));
  CHECK(contains(error_of([&] { const AtomicFolder no(folder / (longest + "n")); }, ExitCode::io),
                 longest + "n: File name too long"));
}

TEST_CASE("symbolic links that lead nowhere are named as the cause") {
  const TempFolder folder;
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink("absent", folder / "dangling");
  const std::string loop = (folder / "loop").string(), reason = "Too many levels of symbolic links";
  CHECK(contains(error_of([&] { make_directories(folder / "loop"); }, ExitCode::io), loop + ": " + reason));
  CHECK(contains(error_of([&] { make_directories(folder / "loop" / "x"); }, ExitCode::io), loop + ": " + reason));
  CHECK(contains(error_of([&] { write_file(folder / "loop", "x"); }, ExitCode::io), loop + ": " + reason));
  CHECK(contains(error_of([&] { make_directories(folder / "dangling" / "x"); }, ExitCode::io),
                 (folder / "dangling").string() + " is a symbolic link to nothing"));
}

TEST_CASE("AppendFile: a long torn line is removed on opening, and whole lines before it stay") {
  const TempFolder folder;
  for (const std::size_t size : {1U << 16, (1U << 16) - 1, 200'000U}) {
    const fs::path file = folder / "log";
    std::string whole(size - 1, 'a');
    whole += '\n';
    write_file(file, whole + std::string(150'000, 'b'));
    AppendFile(file).line("c");
    CHECK(read_file(file) == whole + "c\n");
    write_file(file, std::string(150'000, 'b'));
    AppendFile(file).line("c");
    CHECK(read_file(file) == "c\n");
  }
}
