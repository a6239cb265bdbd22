// Files are whole or absent: what is left behind after success, after giving up, and when the system refuses.
#include "core/io.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace fs = std::filesystem;
using namespace trireme;

namespace {

/// A fresh folder that disappears with the test case.
struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("trireme_io_test.{}", ::getpid());
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

/// While it lives, no file may grow beyond `bytes`: the nearest thing to a full disk that needs no rights.
struct FileSizeLimit {
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &saved);
    const rlimit limited{bytes, saved.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &saved);
    std::signal(SIGXFSZ, handler);
  }
  rlimit saved{};
  void (*handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

/// The message of the Error that `call` throws, after checking its exit code.
template <class Call>
std::string io_error(Call call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::io);
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("write_file: what is read back is what was written, and nothing else is left") {
  const Folder folder;
  const fs::path file = folder.path / "a.bin";
  std::string bytes(300'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131);
  write_file(file, bytes);
  CHECK(read_file(file) == bytes);
  write_file(file, "short");  // replaces, does not overlay
  CHECK(read_file(file) == "short");
  write_file(file, "");
  CHECK(read_file(file).empty());
  CHECK(folder.entries() == 1);
}

TEST_CASE("AtomicFile: the name changes its content only at commit") {
  const Folder folder;
  const fs::path file = folder.path / "weights";
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
  CHECK(folder.entries() == 1);
}

TEST_CASE("AtomicFile: a device or a pipe is not replaced by a file") {
  const Folder folder;
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(write_file(pipe, "text"), doctest::Contains("a device, a pipe or a socket"), Error);
  CHECK(fs::is_fifo(pipe));
  CHECK(folder.entries() == 1);
}

TEST_CASE("AtomicFile: without a commit the old file stays and the temporary one goes") {
  const Folder folder;
  const fs::path file = folder.path / "weights";
  write_file(file, "old");
  {
    AtomicFile abandoned(file);
    abandoned.write("half");
    CHECK(folder.entries() == 2);
  }
  CHECK(read_file(file) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("AtomicFile: two writers of one name do not mix") {
  const Folder folder;
  const fs::path file = folder.path / "weights";
  AtomicFile first(file), second(file);
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  CHECK(read_file(file) == "first");
}

TEST_CASE("AtomicFile: a refused write names the path, the bytes needed and available, and keeps the old file") {
  const Folder folder;
  const fs::path file = folder.path / "weights";
  write_file(file, "old");
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = io_error([&] { write_file(file, std::string(5000, 'x')); });
  }
  CAPTURE(message);
  CHECK(contains(message, file.string()));
  CHECK(contains(message, "needed 4000 more bytes"));  // 1000 of them fitted
  CHECK(contains(message, "available"));
  CHECK(read_file(file) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("AtomicFile: more than the disk holds is refused before anything is written") {
  const Folder folder;
  const fs::path file = folder.path / "weights";
  const std::string message = io_error([&] { const AtomicFile huge(file, std::uint64_t{1} << 62); });
  CHECK(contains(message, "needed 4611686018427387904 more bytes"));
  CHECK(folder.entries() == 0);
}

TEST_CASE("files: each failure names the path and the system's reason") {
  const Folder folder;
  const fs::path absent = folder.path / "absent", inside = absent / "file";
  const std::string reason = "No such file or directory";
  for (const std::string& message : {io_error([&] { read_file(absent); }), io_error([&] { write_file(inside, "x"); }),
                                     io_error([&] { const AppendFile log(inside); })}) {
    CAPTURE(message);
    CHECK(contains(message, absent.string()));
    CHECK(contains(message, reason));
  }
  CHECK(contains(io_error([&] { read_file(folder.path); }), "Is a directory"));
  fs::create_directory(folder.path / "taken");
  CHECK(contains(io_error([&] { write_file(folder.path / "taken", "x"); }), "Is a directory"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("make_directories: creates parents, accepts what exists, refuses a file in the way") {
  const Folder folder;
  make_directories(folder.path / "a" / "b" / "c");
  make_directories(folder.path / "a" / "b" / "c");
  CHECK(fs::is_directory(folder.path / "a" / "b" / "c"));
  write_file(folder.path / "file", "x");
  CHECK(contains(io_error([&] { make_directories(folder.path / "file"); }), "Not a directory"));
  CHECK(contains(io_error([&] { make_directories(folder.path / "file" / "below"); }), "Not a directory"));
}

TEST_CASE("AtomicFolder: appears complete at commit, or not at all") {
  const Folder folder;
  for (const char* spelling : {"shards", "slashed/"}) {
    const fs::path path = folder.path / spelling;
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
    const std::string message = io_error([&] { AtomicFolder(path).commit(); });  // it holds "a"
    CHECK(contains(message, "Directory not empty"));
  }
  CHECK(folder.entries() == 2);
}

TEST_CASE("AppendFile: adds whole lines, readable at once, to what is there") {
  const Folder folder;
  const fs::path file = folder.path / "metrics.jsonl";
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
  const Folder folder;
  const fs::path file = folder.path / "metrics.jsonl";
  write_file(file, "whole\ntor");
  AppendFile(file).line("next");
  CHECK(read_file(file) == "whole\nnext\n");
  write_file(file, "tor");
  AppendFile(file).line("next");
  CHECK(read_file(file) == "next\n");
}

TEST_CASE("AppendFile: what is no regular file is refused at once, a pipe too, read by somebody or not") {
  const Folder folder;
  const fs::path pipe = folder.path / "metrics.jsonl";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto refusal = [](const fs::path& path) -> std::string {
    try {
      AppendFile(path).line("lost");
    } catch (const Error& error) { return fmt::format("{} {}", static_cast<int>(error.code()), error.what()); }
    return "nothing was thrown";
  };
  const std::string expected =
      "65 trireme: [io] {} is not a regular file; expected one, not a folder, a pipe or a device";
  CHECK(refusal(pipe) == fmt::format(fmt::runtime(expected), pipe.string()));
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  CHECK(refusal(pipe) == fmt::format(fmt::runtime(expected), pipe.string()));
  char byte = 0;
  CHECK(::read(reader, &byte, 1) == 0);  // nothing was written to it
  ::close(reader);
  CHECK(refusal("/dev/null") == fmt::format(fmt::runtime(expected), "/dev/null"));
}

TEST_CASE("FileLock: to look at a pipe in the place of a lock does not wait") {
  const Folder folder;
  const fs::path pipe = folder.path / ".lock";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  FileLock::require_free(pipe);
  const FileLock lock(pipe);
  CHECK_THROWS_AS(FileLock::require_free(pipe), Error);
}

TEST_CASE("AppendFile: a line that does not fit is taken back whole") {
  const Folder folder;
  const fs::path file = folder.path / "metrics.jsonl";
  AppendFile log(file);
  log.line("first");
  std::string message;
  {
    const FileSizeLimit limit(50);
    message = io_error([&] { log.line(std::string(100, 'x')); });
  }
  CHECK(contains(message, file.string()));
  CHECK(read_file(file) == "first\n");
  log.line("second");
  CHECK(read_file(file) == "first\nsecond\n");
}

TEST_CASE("InputFile: reads where it is asked to, and says where a file ends too early") {
  const Folder folder;
  const fs::path file = folder.path / "file";
  write_file(file, "0123456789");
  const InputFile input(file);
  CHECK(input.size() == 10);
  std::string bytes(4, ' ');
  input.read_at(3, std::as_writable_bytes(std::span(bytes)));
  CHECK(bytes == "3456");
  std::string message;
  try {
    input.read_at(8, std::as_writable_bytes(std::span(bytes)));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    message = error.what();
  }
  CHECK(contains(message, file.string() + " ends at byte 10; expected 2 bytes more"));
  CHECK(contains(io_error([&] { const InputFile absent(folder.path / "absent"); }), "No such file"));
}

TEST_CASE("InputFile: a folder and a pipe that nobody writes to are refused at once") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  for (const fs::path& path : {folder.path, folder.path / "pipe"}) {
    std::string message = "opened";
    try {
      const InputFile input(path);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::data);
      message = error.what();
    }
    CHECK(contains(message, path.string() + " is not a regular file"));
  }
}

TEST_CASE("folders are listed in order, moved, removed, and asked for room") {
  const Folder folder;
  CHECK(list_folder(folder.path / "absent").empty());
  for (const char* name : {"b", "a", "c"}) make_directories(folder.path / name);
  write_file(folder.path / "b" / "file", "x");
  CHECK(list_folder(folder.path) == std::vector<std::string>{"a", "b", "c"});
  CHECK(contains(io_error([&] { move_folder(folder.path / "a", folder.path / "b"); }), "Directory not empty"));
  move_folder(folder.path / "b", folder.path / "d");
  CHECK(read_file(folder.path / "d" / "file") == "x");
  remove_folder(folder.path / "d");
  remove_file(folder.path / "nothing");
  CHECK(list_folder(folder.path) == std::vector<std::string>{"a", "c"});
  CHECK(contains(io_error([&] { require_space(folder.path, std::uint64_t{1} << 62); }), "needed 4611686018427387904"));
}

TEST_CASE("FileLock: who has it is told to whoever comes second") {
  const Folder folder;
  const fs::path file = folder.path / "lock";
  const auto second = [&] {
    try {
      const FileLock lock(file);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::locked);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  {
    const FileLock lock(file);
    CHECK(contains(second(), fmt::format(", process {}, since 20", ::getpid())));
    CHECK(contains(read_file(file), ", number "));
  }
  CHECK(second() == "nothing");
}
