// Mapped files: what is refused, and what happens when another program cuts a mapped file short.
#include "data/mapped_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>

#include "data/byte_tokenizer.h"
#include "data/token_shard.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// Runs f in a process of its own, with standard error in `errors`; returns how it ended.
template <class F>
int status_of(const fs::path& errors, const F& f) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen(errors.c_str(), "w", stderr) == nullptr) ::_exit(99);
    f();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

int sum_of(std::string_view text) {
  return std::accumulate(text.begin(), text.end(), 0, [](int sum, char c) { return sum + c; });
}

constexpr std::size_t pages = 4 * 4096;

}  // namespace

TEST_CASE("MappedFile: a pipe, a folder and a device are refused at once, with what they are") {
  const TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const auto& [path, kind] : {std::pair<fs::path, std::string>{folder / "pipe", "a pipe"},
                                   {folder.path(), "a folder"},
                                   {"/dev/zero", "a device"}})
    CHECK(contains(error_of([&, path = path] { const MappedFile mapped(path); }, ExitCode::data),
                   path.string() + " is not a regular file but " + kind));
}

TEST_CASE("MappedFile: reading a file that was emptied ends the process with the code of damaged data and its name") {
  const TempFolder folder;
  const fs::path file = folder / "text", errors = folder / "errors";
  write_plainly(file, std::string(pages, 'x'));
  const int status = status_of(errors, [&] {
    const MappedFile mapped(file);
    fs::resize_file(file, 0);
    std::printf("%d", sum_of(mapped.text()));
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 65);
  const std::string message = content_of(errors);
  CHECK(contains(message, "trireme: FATAL[65] [data] " + file.string() + " was cut short"));
  CHECK(occurrences(message, "FATAL") == 1);
}

TEST_CASE("MappedFile: the signal of another mapping stays what it was") {
  if (sanitized) return;  // sanitizers have a handler of their own
  const TempFolder folder;
  const fs::path file = folder / "text";
  write_plainly(file, std::string(pages, 'x'));
  const int status = status_of(folder / "errors", [&] {
    { const MappedFile mapped(file); }  // no longer mapped
    ::raise(SIGBUS);
  });
  CHECK(WIFSIGNALED(status));
  CHECK(!contains(content_of(folder / "errors"), "FATAL"));  // an emulator may print a line of its own
}

TEST_CASE(
    "MappedFile: a file that was cut within a page, which reads as zeros, is found; one that was replaced is fine") {
  const TempFolder folder;
  const fs::path file = folder / "text";
  write_plainly(file, std::string(pages, 'x'));
  const MappedFile mapped(file);
  mapped.require_whole();
  write_plainly(folder / "other", "short");
  fs::rename(folder / "other", file);
  mapped.require_whole();
  fs::remove(file);
  mapped.require_whole();
  CHECK(sum_of(mapped.text()) == static_cast<int>(pages) * 'x');

  write_plainly(file, std::string(pages, 'x'));
  const MappedFile again(file);
  fs::resize_file(file, pages - 10);
  CHECK(again.text().back() == '\0');
  CHECK(contains(error_of([&] { again.require_whole(); }, ExitCode::data), file.string() + " was cut short"));
}

TEST_CASE("a token shard that is cut short while it is in use: its tokens are not read as zeros") {
  const TempFolder folder;
  ByteTokenizer().save(folder / shard_tokenizer_name);
  ShardWriter writer(folder.path(), ByteTokenizer(), 1000);
  writer.append(std::vector<std::int32_t>(1000, 7));
  writer.finish();
  const ShardSet set = open_shards(folder.path());
  const fs::path file = folder / "tokens_00000.tokens";
  fs::resize_file(file, 100);
  std::vector<std::int32_t> ids(50);
  CHECK(contains(error_of([&] { set.tokens->read(900, ids); }, ExitCode::data), file.string() + " was cut short"));
}
