// The prepare_data program from outside: what it leaves on disk, its exit codes and its one message.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "data/corpus.h"
#include "helpers.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

struct Ran {
  int code;
  std::string errors;
};

/// Runs prepare_data with these arguments, quoted by the caller where needed.
Ran prepare_data(const TempFolder& folder, const std::string& arguments) {
  const fs::path errors = folder / "stderr";
  const std::string command =
      std::string("\"") + TRIREME_PREPARE_DATA + "\" " + arguments + " > /dev/null 2> " + errors.string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(errors)};
}

}  // namespace

TEST_CASE("prepare_data makes shards that load_corpus takes, for every tokenizer") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += fmt::format("line {} of a text that is no longer than it must be\n", i % 17);
  write_file(folder / "text.txt", text);
  const std::string data = "--data " + (folder / "text.txt").string() + " --out ";
  const auto out = [&](const char* name) { return (folder / name).string(); };
  CHECK(prepare_data(folder, data + out("chars")).code == 0);
  CHECK(prepare_data(folder, data + out("bytes") + " --tokenizer byte --shard-tokens 1000").code == 0);
  CHECK(prepare_data(folder, data + out("bpe") + " --train-bpe --vocab 300").code == 0);
  CHECK(prepare_data(folder, data + out("again") + " --tokenizer bpe:" + out("bpe")).code == 0);
  CHECK(fs::exists(folder / "bytes" / "tokens_00001.tokens"));
  const auto hash = [&](const char* name) { return load_corpus({folder / name, std::nullopt, 0.1, 8}).hash; };
  CHECK(hash("chars") == load_corpus({folder / "text.txt", "char", 0.1, 8}).hash);
  CHECK(hash("bytes") == load_corpus({folder / "text.txt", "byte", 0.1, 8}).hash);
  CHECK(hash("bpe") == hash("again"));
  CHECK(load_corpus({folder / "bpe", std::nullopt, 0.1, 8}).tokenizer->vocab_size() == 300);
}

TEST_CASE("prepare_data: one message, the right exit code, and nothing left behind") {
  const TempFolder folder;
  write_file(folder / "text.txt", "some text");
  write_file(folder / "empty.txt", "");
  write_file(folder / "latin1.txt", "caf\xE9");
  fs::create_directories(folder / "taken");
  write_file(folder / "taken" / "file", "x");
  const std::string here = folder.path().string() + "/", out = " --out " + here + "out";
  const auto refused = [&](const std::string& arguments, ExitCode code, std::string_view part) {
    const Ran ran = prepare_data(folder, arguments);
    CAPTURE(arguments);
    CAPTURE(ran.errors);
    CHECK(ran.code == static_cast<int>(code));
    CHECK(ran.errors.find(part) != std::string::npos);
    CHECK(std::count(ran.errors.begin(), ran.errors.end(), '\n') == 1);
    CHECK_FALSE(fs::exists(folder / "out"));
    CHECK_FALSE(fs::exists(folder / "out.partial"));
  };
  refused("--data " + here + "text.txt", ExitCode::usage, "--out is missing");
  refused(out, ExitCode::usage, "--data is missing");
  refused("--dta x" + out, ExitCode::usage, "--data");
  refused("--data " + here + "absent" + out, ExitCode::usage, "does not exist");
  refused("--data " + here + "empty.txt" + out, ExitCode::data, "is empty");
  refused("--data " + here + "latin1.txt" + out, ExitCode::data, "byte 3");
  refused("--data " + here + "text.txt --out " + here + "taken", ExitCode::usage, "not an empty folder");
  refused("--data " + here + "text.txt --out " + here + "text.txt/x", ExitCode::io, "text.txt/x");
  refused("--data " + here + "text.txt --train-bpe" + out, ExitCode::usage, "--vocab");
  refused("--data " + here + "text.txt --vocab 300" + out, ExitCode::usage, "--train-bpe");
  refused("--data " + here + "text.txt --train-bpe --vocab 300" + out, ExitCode::usage, "supports a vocabulary of");
  refused("--data " + here + "text.txt --shard-tokens 0" + out, ExitCode::usage, "--shard-tokens");
}
