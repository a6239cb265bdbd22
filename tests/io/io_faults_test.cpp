// Injected file system faults: the syntax of TRIREME_IO_FAULT, and what core/io.h does with each kind. Faults cannot be
// disarmed, so each case runs in its own process.
#include "core/io_faults.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/io.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace fs = std::filesystem;
using namespace trireme;
using namespace trireme::testing;

namespace {

/// Runs f in a child process with this fault armed. Returns 0, the exit code of the Error that f throws, or 128 + the
/// signal that ended the child.
int ending(const std::string& fault, const std::function<void()>& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      arm_io_faults(parse_io_fault(fault));
      f();
    } catch (const Error& error) { code = static_cast<int>(error.code()); }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const std::string text(5000, 'x');

}  // namespace

TEST_CASE("what is no fault of the file system is refused with the grammar") {
  for (const char* wrong :
       {"", "kind=melt", "op=3", "kind=kill", "kind=drop_unsynced", "kind=eio,op=x", "kind=eio,op=-1",
        "kind=eio,call=stat", "kind=eio,when=now", "kind", "kind=kill,op=1,start=x"}) {
    CAPTURE(wrong);
    CHECK(contains(error_of([&] { parse_io_fault(wrong); }, ExitCode::usage), "expected kind=K"));
  }
  const IoFault fault = parse_io_fault("kind=enospc,op=3-,call=write,path=step_,rank=1,start=any");
  CHECK(fault.kind == IoFault::Kind::enospc);
  CHECK(fault.first == 3);
  CHECK(fault.last == IoFault::no_end);
  CHECK(fault.call == "write");
  CHECK(fault.path == "step_");
  CHECK(fault.rank == 1);
  CHECK_FALSE(fault.start.has_value());
}

TEST_CASE("killed at any operation, a file is the old one or the new one") {
  const TempFolder folder;
  const fs::path file = folder / "file";
  int operations = 0, news = 0;
  for (int code = 137; code == 137;) {
    write_file(file, "old");
    code = ending(fmt::format("kind=kill,op={}", ++operations), [&] { write_file(file, text); });
    const std::string content = read_file(file);
    CHECK((content == "old" || content == text));
    news += static_cast<int>(content == text);
    CHECK((code == 137 || code == 0));
  }
  CHECK(operations > 5);  // open, write, fsync, close, rename, and the folder's
  CHECK(news > 1);
}

TEST_CASE("an operation that fails is an error, and the old file stays") {
  const TempFolder folder;
  const fs::path file = folder / "file";
  write_file(file, "old");
  const auto write = [&] { write_file(file, text); };
  for (const char* call : {"open", "write", "fsync", "close", "rename"}) {
    for (const char* kind : {"eio", "enospc"})
      CHECK_MESSAGE(ending(fmt::format("kind={},op=1,call={}", kind, call), write) == 74, call);
  }
  CHECK(read_file(file) == "old");
  CHECK(list_folder(folder.path()).size() == 1);
  CHECK(ending("kind=eio,op=1,path=elsewhere", write) == 0);
  CHECK(read_file(file) == text);
  CHECK(ending("kind=eio,op=1,call=read", [&] { read_file(file); }) == 74);
  CHECK(ending("kind=eio,op=1,call=mkdir", [&] { make_directories(folder / "a/b"); }) == 74);
  CHECK(ending("kind=eio,op=1,call=rmdir", [&] { remove_folder(folder.path()); }) == 74);
}

TEST_CASE("short reads and writes are continued") {
  const TempFolder folder;
  const fs::path file = folder / "file";
  CHECK(ending("kind=short,op=1-", [&] {
          write_file(file, text);
          require(read_file(file) == text, "test", "read back");
          std::vector<std::byte> part(777);
          InputFile(file).read_at(100, part);
          require(part.back() == std::byte{'x'}, "test", "a part");
          AppendFile(folder / "log").line("whole");
        }) == 0);
  CHECK(read_file(file) == text);
  CHECK(read_file(folder / "log") == "whole\n");
}

TEST_CASE("the journal has every operation that changed something, with its data") {
  const TempFolder folder;
  const fs::path journal = folder / "journal";
  CHECK(ending("kind=count,journal=" + journal.string(), [&] {
          write_file(folder / "file", "content");
          read_file(folder / "file");
          require(io_operations() > 8, "test", "counted");
        }) == 0);
  const std::string records = read_file(journal);
  for (const char* part : {"open", "write", "content", "fsync", "rename", "close"})
    CHECK(records.find(part) != std::string::npos);
  CHECK(records.find("pread") == std::string::npos);
}
