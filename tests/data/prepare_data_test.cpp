// The prepare_data program from outside: what it leaves on disk, its exit codes and its one message.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>

#include "core/error.h"
#include "core/io.h"
#include "data/corpus.h"
#include "data/prepare/work_folder.h"
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

/// For a shell: folders may have spaces in their names.
const std::string program = std::string("\"") + TRIREME_PREPARE_DATA + "\"";

/// Runs prepare_data with these arguments, quoted by the caller where needed, but for the folder's own path.
Ran prepare_data(const TempFolder& folder, std::string arguments) {
  const std::string path = folder.path().string(), quoted = '"' + path + '"';
  for (std::size_t at = 0; (at = arguments.find(path, at)) != std::string::npos; at += quoted.size())
    arguments.replace(at, path.size(), quoted);
  const std::string command = program + " " + arguments + " > /dev/null 2> " + quoted + "/stderr";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "stderr")};
}

/// The exit code of a shell that runs these lines, which have no single quotes, in the folder; its output: file `said`.
int shell_in(const TempFolder& folder, const std::string& lines) {
  const int status = std::system(("cd \"" + folder.path().string() + "\"; bash -c '" + lines + "' >said 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Names in a folder that a finished program should not leave.
std::ptrdiff_t temporaries(const TempFolder& folder) {
  const std::vector<std::string> names = list_folder(folder.path());
  return std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.find(".tmp.") != std::string::npos || name.ends_with(".partial");
  });
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
    CHECK(temporaries(folder) == 0);
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
  refused("--data - --format jsonl" + out, ExitCode::usage, "--data - can be read only once, and --tokenizer char");
  refused("--data " + here + "text.txt --min-chars 9 --max-chars 5" + out, ExitCode::usage, "--max-chars 5 is less");
  refused("--data " + here + "text.txt --min-chars 100" + out, ExitCode::data, "no document is left: 1 are too short");
  refused("--data " + here + "text.txt --val-fraction 0.2" + out, ExitCode::usage, "--shard-format");
  refused("--data " + here + "text.txt --threads 2" + out, ExitCode::usage, "--workers");
  write_file(folder / "bad.jsonl", "{\"text\":\"a\"}\n{\"text\":\n");
  refused("--data " + here + "bad.jsonl" + out, ExitCode::data, "bad.jsonl line 2 byte 8");
  write_file(folder / "cut.txt.gz", std::string("\x1f\x8b\x08", 3));
  refused("--data " + here + "cut.txt.gz" + out, ExitCode::data, "cut.txt.gz");
}

TEST_CASE("prepare_data: a signal while the vocabulary is learnt removes what was written so far, and says so") {
  const TempFolder folder;
  std::string text;
  for (std::uint64_t i = 1, x = 1; i < 500'000; ++i, x = x * 6364136223846793005U + 1442695040888963407U)
    text += fmt::format("{:x} ", x >> 40);
  write_file(folder / "text.txt", text);
  for (const std::string signal : {"TERM", "INT", "HUP", "QUIT", "USR1"}) {
    CAPTURE(signal);
    // With job control (set -m), the shell does not start background jobs with SIGINT ignored.
    const int code = shell_in(
        folder,
        fmt::format("set -m; trap - HUP; {} --data text.txt --train-bpe --vocab 30000 --out out 2>stderr & p=$!; "
                    "until ls -d out.partial; do kill -0 $p || exit 99; done; kill -{} $p; wait $p",
                    program, signal));
    const std::string said = read_file(folder / "stderr");
    CAPTURE(said);
    if (code == 99 || code == 0 || said.find("goes on where it was") != std::string::npos) {
      MESSAGE("the signal came too late: the vocabulary was learnt");  // the shell got no processor for so long
      for (const char* left : {"out", "out.partial"}) fs::remove_all(folder / left);
      continue;
    }
    CHECK(code == static_cast<int>(ExitCode::retryable));
    CHECK(said == "trireme: told to stop before the folder was complete: nothing of it is left\n");
    CHECK(temporaries(folder) == 0);
    CHECK_FALSE(fs::exists(folder / "out"));
  }
}

TEST_CASE("prepare_data: --out that is the current folder, a link, or a name as long as may be") {
  const TempFolder folder;
  write_file(folder / "text.txt", "some text");
  for (const char* name : {"empty", "target", "current"}) fs::create_directory(folder / name);
  fs::create_directory_symlink("target", folder / "link");
  fs::create_symlink("nothing", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  const std::string here = folder.path().string() + "/", data = "--data " + here + "text.txt --out ";
  const std::string longest(255, 'n');
  for (const std::string& out : {longest, std::string("empty"), std::string("link")}) {
    CAPTURE(out);
    CHECK(prepare_data(folder, data + here + out).code == 0);
    CHECK(fs::exists(folder / out / "tokenizer.json"));
  }
  CHECK(fs::is_symlink(folder / "link"));
  const auto refused = [&](const std::string& out, ExitCode code, std::string_view part) {
    const Ran ran = prepare_data(folder, data + out);
    CAPTURE(out);
    CAPTURE(ran.errors);
    CHECK(ran.code == static_cast<int>(code));
    CHECK(ran.errors.find(part) != std::string::npos);
    CHECK(temporaries(folder) == 0);
  };
  refused(here + longest + "n", ExitCode::io, "File name too long");
  refused(here + "dangling", ExitCode::usage, "is a symbolic link to nothing");
  refused(here + "loop", ExitCode::io, "Too many levels of symbolic links");
  refused(here + "text.txt", ExitCode::usage, "is not a folder");
  const fs::path before = fs::current_path();
  fs::current_path(folder / "current");
  refused(".", ExitCode::usage, ". is the current folder");
  refused("../current", ExitCode::usage, "../current is the current folder");
  fs::current_path(before);
  CHECK(fs::is_empty(folder / "current"));
}

namespace {

/// Writes `count` lines of JSON with random words.
void write_lines(const fs::path& path, int count) {
  std::string text;
  for (std::uint64_t i = 1, x = 1; i <= static_cast<std::uint64_t>(count); ++i) {
    text += "{\"text\":\"";
    for (int n = 0; n < 30; ++n, x = x * 6364136223846793005U + 1442695040888963407U)
      text += fmt::format("{:x} ", x >> 44);
    text += "\"}\n";
  }
  write_plainly(path, text);
}

/// Names and contents of all files in a folder.
std::string everything_in(const fs::path& folder) {
  std::string all;
  for (const std::string& name : list_folder(folder)) all += name + "\n" + content_of(folder / name);
  return all;
}

}  // namespace

TEST_CASE("prepare_data: killed in the middle or told to stop, the same command goes on to the same bytes") {
  const TempFolder folder;
  write_lines(folder / "lines.jsonl", 40'000);
  const std::string command =
      program + " --data lines.jsonl --tokenizer byte --dedup --shard-tokens 1000000 --sync-seconds 0";
  const auto shell = [&](const std::string& lines) { return shell_in(folder, lines); };
  REQUIRE(shell(command + " --out whole --workers 1") == 0);
  // --out in the folder of the texts: what is left of an earlier start is no text.
  for (const char* job : {"out.partial", "other.partial"}) {
    fs::create_directories(folder / "texts" / job);
    write_plainly(folder / "texts" / job / ".lock", "host a, process 1");
  }
  write_plainly(folder / "texts" / "other.partial" / "progress.json",
                "{\n \"complete\": false,\n \"format\": \"trireme prepare_data 1\"\n}\n");
  write_plainly(folder / "texts" / "other.partial" / "left.txt", "left");
  write_plainly(folder / "texts" / "a.txt", "abc");
  REQUIRE(shell(program + " --data texts --tokenizer byte --out texts/out") == 0);
  CHECK(content_of(folder / "said").find("wrote texts/out: 3 tokens") != std::string::npos);
  CHECK(content_of(folder / "said").find("2 written by Trireme (the first: texts/other.partial/left.txt)") !=
        std::string::npos);
  const std::string expected = everything_in(folder / "whole");
  CHECK(fs::exists(folder / "whole" / "tokens_00002.tokens"));
  int stopped = 0;
  for (const std::string signal : {"KILL", "TERM", "INT"}) {
    CAPTURE(signal);
    const std::string out = "out" + signal;
    // Each start may end before the signal comes, so the second shard is what is waited for.
    const int code =
        shell(fmt::format("set -m; {0} --out {1} --workers 2 & p=$!; until test -e {1}.partial/tokens_00001.tokens; do "
                          "kill -0 $p || exit 99; "
                          "done; kill -{2} $p; wait $p",
                          command, out, signal));
    const std::string said = content_of(folder / "said");
    CAPTURE(said);
    if (code == 99 || code == 0) continue;
    ++stopped;
    CHECK(code == (signal == "KILL" ? 137 : static_cast<int>(ExitCode::retryable)));
    if (signal != "KILL") CHECK(said.find("told to stop: the same command goes on where it was") != std::string::npos);
    CHECK_FALSE(fs::exists(folder / out));
    CHECK(shell(command + " --min-chars 5 --out " + out) == 64);
    CHECK(content_of(folder / "said").find("--min-chars was 1 then; now it is 5") != std::string::npos);
    REQUIRE(shell(command + " --out " + out + " --workers 3") == 0);
    CHECK(content_of(folder / "said").find("goes on after") != std::string::npos);
    CHECK(everything_in(folder / out) == expected);
    CHECK(temporaries(folder) == 0);
  }
  if (stopped == 0) MESSAGE("every start ended before its signal came");  // the shell got no processor for so long
}

TEST_CASE(
    "prepare_data: standard input, tables and folders give what files of JSON give; a killed job reads the pipe "
    "again") {
  const TempFolder folder;
  write_lines(folder / "lines.jsonl", 20'000);
  const auto shell = [&](const std::string& lines) { return shell_in(folder, lines); };
  const std::string command = program + " --tokenizer byte --sync-seconds 0 ";
  REQUIRE(shell(command + "--data lines.jsonl --out a") == 0);
  REQUIRE(shell("cat lines.jsonl | " + command + "--data - --format jsonl --out b") == 0);
  CHECK(everything_in(folder / "b") == everything_in(folder / "a"));
  // A pipe that stops: the first start waits in the middle until it is killed.
  shell("set -m; (head -n 15000 lines.jsonl; sleep 36000) | " + command +
        "--data - --format jsonl --out c & until grep -q \"offset.: [1-9]\" c.partial/progress.json; do kill -0 %1 || "
        "exit 99; sleep 0.1; done; kill -9 %1");
  REQUIRE(fs::exists(folder / "c.partial"));
  shell("head -n 15000 lines.jsonl | tr 0 1 | " + command + "--data - --format jsonl --out c");
  CHECK(content_of(folder / "said").find("standard input has another text") != std::string::npos);
  REQUIRE(shell("cat lines.jsonl | " + command + "--data - --format jsonl --out c") == 0);
  CHECK(content_of(folder / "said").find("goes on after") != std::string::npos);
  CHECK(everything_in(folder / "c") == everything_in(folder / "a"));
}

TEST_CASE("prepare_data writes the files of nanoGPT and llm.c, from text and from shards") {
  const TempFolder folder;
  write_plainly(folder / "text.txt", std::string(900, 'a') + std::string(100, 'b'));
  const std::string data = "--data " + (folder / "text.txt").string() + " --tokenizer byte --out ";
  const auto out = [&](const char* name) { return (folder / name).string(); };
  const auto pair_of = [](char c) { return std::string{c, '\0'}; };
  std::string train, val;
  for (int i = 0; i < 900; ++i) train += pair_of('a');
  for (int i = 0; i < 100; ++i) val += pair_of('b');
  CHECK(prepare_data(folder, data + out("nano") + " --shard-format nanogpt").code == 0);
  CHECK(list_folder(folder / "nano") == std::vector<std::string>{"tokenizer.json", "train.bin", "val.bin"});
  CHECK(content_of(folder / "nano" / "train.bin") == train);
  CHECK(content_of(folder / "nano" / "val.bin") == val);
  CHECK(prepare_data(folder, data + out("shards") + " --shard-tokens 64").code == 0);
  CHECK(prepare_data(folder, fmt::format("--data {} --out {} --shard-format llmc --shard-tokens 500", out("shards"),
                                         out("llmc")))
            .code == 0);
  CHECK(list_folder(folder / "llmc") ==
        std::vector<std::string>{"tokenizer.json", "train_000000.bin", "train_000001.bin", "val_000000.bin"});
  CHECK(content_of(folder / "llmc" / "train_000001.bin").substr(1024) == train.substr(1000));
  const Corpus nano = load_corpus({folder / "nano", std::nullopt, 0.1, 8});
  const Corpus shards = load_corpus({folder / "shards", std::nullopt, 0.1, 8});
  CHECK(nano.train.count() == shards.train.count());
  CHECK(prepare_data(folder, fmt::format("--data {} --out {}", out("nano"), out("again"))).code == 64);
}

TEST_CASE("prepare_data removes only files that it made itself") {
  const TempFolder folder;
  const auto job = [&](const std::string& flags) {
    const int code = shell_in(folder, program + " --tokenizer byte --out c " + flags);
    return fmt::format("{} {}", code, content_of(folder / "said"));
  };
  write_plainly(folder / "a.txt", "a text");
  fs::create_directory(folder / "c.partial");
  const auto refused = [&](const std::string& flags, std::string_view what) {
    const std::string said = job(flags);
    CAPTURE(said);
    CHECK(said.starts_with("73 "));
    CHECK(said.find(what) != std::string::npos);
    CHECK_FALSE(fs::exists(folder / "c"));
  };
  write_plainly(folder / "c.partial" / "t.txt", "the only copy");
  refused("--data c.partial", "c.partial is where this job would work, and t.txt in it is not of prepare_data");
  refused("--data a.txt", "t.txt in it is not of prepare_data");
  write_plainly(folder / "c.partial" / ".lock", "");
  write_plainly(folder / "c.partial" / "progress.json", "{}");
  refused("--data a.txt", "t.txt in it is not of prepare_data");
  CHECK(content_of(folder / "c.partial" / "t.txt") == "the only copy");
  fs::remove(folder / "c.partial" / "t.txt");
  fs::create_directories(folder / "c.partial" / "tokenizer.json");
  refused("--data a.txt", "tokenizer.json in it is not of prepare_data");
  fs::remove_all(folder / "c.partial");
  // Shards that somebody has given this name: they have no lock.
  REQUIRE(job("--data a.txt").starts_with("0 "));
  fs::rename(folder / "c", folder / "c.partial");
  refused("--data a.txt", "but no .lock of a stopped job");
  CHECK(list_folder(folder / "c.partial") == std::vector<std::string>{"tokenizer.json", "tokens_00000.tokens"});
  // What a killed job has left.
  write_plainly(folder / "c.partial" / ".lock", "");
  write_plainly(folder / "c.partial" / "tokenizer.json.tmp.17.3", "{");
  const std::string said = job("--data a.txt");
  CHECK_MESSAGE(said.starts_with("0 "), said);
  CHECK(temporaries(folder) == 0);
}

TEST_CASE("prepare_data: a file of somebody else in a finished folder stays, and a damaged note has a remedy") {
  const TempFolder folder;
  write_plainly(folder / "a.txt", "a text");
  const auto job = [&] { return shell_in(folder, program + " --tokenizer byte --out c --data a.txt --workers 1"); };
  fs::create_directory(folder / "c.partial");
  write_plainly(folder / "c.partial" / ".lock", "");
  write_plainly(folder / "c.partial" / "progress.json", "{\n \"bytes\": 4");
  CHECK(job() == 65);
  CHECK(content_of(folder / "said").find("remove the folder c.partial to begin anew") != std::string::npos);
  CHECK(fs::exists(folder / "c.partial" / "progress.json"));
  for (const char* name : {"notes.txt", "tokens_1x.tokens", "train_.bin", "progress.json.tmp.x", "progress.json.old"})
    CHECK_FALSE(is_prepare_file(name));
  for (const char* name : {".lock", "progress.json", "progress.json.tmp.12.0", "tokenizer.json", "tokens_00000.tokens",
                           "documents_123456.part", "seen.part", "train.bin", "val_000001.bin", "val.bin.tmp.3.4"})
    CHECK(is_prepare_file(name));
  fs::create_directory(folder / "d");
  for (const char* name : {".lock", "seen.part", "notes.txt"}) write_plainly(folder / "d" / name, "x");
  remove_job(folder / "d");
  CHECK(list_folder(folder / "d") == std::vector<std::string>{"notes.txt"});
  fs::remove(folder / "d" / "notes.txt");
  remove_job(folder / "d");
  CHECK_FALSE(fs::exists(folder / "d"));
}

TEST_CASE("prepare_data: what is no text is refused on standard input, too, and messages have one line") {
  const TempFolder folder;
  write_plainly(folder / "a.txt", "a text");
  write_plainly(folder / "mark.txt", "\xEF\xBB\xBF");
  const auto refused = [&](const std::string& lines, std::string_view what) {
    const int code = shell_in(folder, lines);
    const std::string said = content_of(folder / "said");
    CAPTURE(said);
    CHECK(code == 65);
    CHECK(said.find(what) != std::string::npos);
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    CHECK(temporaries(folder) == 0);
  };
  const std::string piped = " | " + program + " --data - --tokenizer byte --out s";
  refused("gzip -c a.txt" + piped, "standard input is no text, but compressed by gzip; decompress it (zcat)");
  refused("printf \"\\xff\\xfea\\x01\"" + piped, "standard input is no text, but UTF-16");
  refused("printf \"ab\\0\"" + piped, "standard input is no text, but byte 2 is zero");
  refused("printf \"version https://git-lfs.github.com/spec/v1\\noid sha256:1\\nsize 9\\n\"" + piped,
          "standard input is a pointer of Git LFS");
  refused(program + " --tokenizer byte --out s --data <(cat a.txt)",
          "is not a regular file but a pipe; expected a file or a folder");
  refused(program + " --train-bpe --vocab 300 --out s --data mark.txt", "there is no text; expected at least one");
  CHECK(shell_in(folder, program + " --tokenizer byte --out s --data \"no\nsuch\nfile\"") == 64);
  CHECK(content_of(folder / "said").find("no\\x0asuch\\x0afile does not exist") != std::string::npos);
}
