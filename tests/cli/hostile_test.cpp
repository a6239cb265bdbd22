// Surroundings that a user did not mean: special files, closed or full outputs, small limits, signals at any moment,
// enormous values. Each ends with the exit code of its kind and one message, soon.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

std::string command(const std::string& program, const std::string& arguments) {
  return fmt::format("{}/{} {}", TRIREME_BIN, program, arguments);
}

std::string make_shards(const Workplace& work) {
  const std::string folder = work.path("shards");
  REQUIRE(run("prepare_data", fmt::format("--data {} --out {}", work.path("text.txt"), folder)).code == 0);
  return folder;
}

/// A named pipe that is full while this lives: who writes to it waits.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    end_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(end_ >= 0);
    while (::write(end_, "x", 1) == 1) {}
  }
  ~FullPipe() { ::close(end_); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

 private:
  int end_ = -1;
};

}  // namespace

TEST_CASE("a pipe in the place of a text, a tokenizer, a shard, a prompt or a checkpoint is refused at once") {
  const Workplace work;
  const std::string pipe = work.path("pipe"), shards = make_shards(work);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string kind = " is not a regular file but a pipe";
  check_refused(run("train_gpt", work.small_run() + "--data " + pipe), 65, {pipe + kind});
  check_refused(run("train_gpt", work.small_run() + "--tokenizer bpe:" + pipe), 65, {pipe + kind});
  check_refused(run("train_gpt", work.small_run() + "--config " + pipe), 64, {pipe + " is not a file"});
  check_refused(run("prepare_data", "--data " + pipe + " --out " + work.path("new")), 65, {pipe + kind});
  check_refused(run("generate", "--checkpoint " + pipe + " --prompt A"), 64,
                {pipe + " is a device, a pipe or a socket"});
  check_refused(run("generate", "--checkpoint /dev/null --prompt A"), 64, {"/dev/null is a device"});
  for (const std::string name : {"tokens_00000.tokens", "tokenizer.json"}) {
    fs::rename(shards + "/" + name, work.folder / "aside");
    REQUIRE(::mkfifo((shards + "/" + name).c_str(), 0600) == 0);
    check_refused(run("train_gpt", work.small_run() + "--data " + shards), 65, {name + kind});
    fs::remove(shards + "/" + name);
    fs::rename(work.folder / "aside", shards + "/" + name);
  }
  check_refused(run("train_gpt", work.small_run() + "--data /dev/zero"), 65,
                {"/dev/zero is not a regular file but a device"});
}

TEST_CASE("token shards whose files are gone are not read as text") {
  const Workplace work;
  const std::string shards = make_shards(work);
  fs::remove(shards + "/tokens_00000.tokens");
  check_refused(run("train_gpt", work.small_run() + "--data " + shards), 65,
                {shards + "/tokenizer.json belongs to token shards"});
}

TEST_CASE("a shard that is emptied while a run reads it ends the run with its name") {
  const Workplace work;
  const std::string shards = make_shards(work), log = work.path("log");
  const std::string train = command("train_gpt", work.small_run() + "--mesh dp=2 " + endless + "--data " + shards);
  const Result cut = shell(fmt::format("{}{}: >{}/tokens_00000.tokens; wait $p", started(train, log),
                                       until(has_line("^step 3/", log)), shards));
  const std::string text = content_of(log);
  INFO(text);
  CHECK(cut.code == 65);
  CHECK(occurrences(text, "FATAL[65]") == 1);
  CHECK(contains(text, shards + "/tokens_00000.tokens was cut short"));
}

TEST_CASE("with all standard streams closed, no message goes into the run's files") {
  const Workplace work;
  const std::string out = work.path("run");
  const Result closed =
      shell(fmt::format("{} <&- >&- 2>&-", command("train_gpt", work.small_run() + "--steps 3 --out " + out)));
  CHECK(closed.code == 0);
  CHECK(closed.output.empty());
  CHECK(results(out + "/metrics.jsonl").size() == 3);  // each line is JSON
  CHECK(run("checkpoint", "verify " + out).code == 0);
}

TEST_CASE("what cannot be written to standard output is an error, with the system's reason") {
  const Workplace work;
  const std::string out = work.path("run");
  REQUIRE(run("train_gpt", work.small_run() + "--steps 2 --out " + out).code == 0);
  for (const std::string& program :
       {command("train_gpt", work.small_run() + "--print-config"), command("train_gpt", "--help"),
        command("train_gpt", "--version"), command("generate", "--checkpoint " + out + " --prompt A --length 5"),
        command("checkpoint", "inspect " + out), command("checkpoint", "verify " + out),
        command("prepare_data", fmt::format("--data {} --out {}", work.path("text.txt"), work.path("tokens")))}) {
    const Result full = shell(program + " >/dev/full");
    CAPTURE(program);
    check_refused(full, 74, {"[stdout]", "No space left on device"});
  }
  const Result trained = shell(command("train_gpt", work.small_run()) + " >/dev/full");
  INFO(trained.output);
  CHECK(trained.code == 74);
  CHECK(contains(trained.output, "No space left on device"));
}

TEST_CASE(
    "with standard output closed, a program whose result is printed fails; one whose result is in files does not") {
  const Workplace work;
  const std::string out = work.path("run");
  REQUIRE(run("train_gpt", work.small_run() + "--steps 2 --out " + out).code == 0);
  for (const std::string& program :
       {command("train_gpt", work.small_run() + "--print-config"), command("train_gpt", "--help"),
        command("plot", "--help"), command("plot", out), command("parity", ""), command("schedule", ""),
        command("generate", "--checkpoint " + out + " --prompt A --length 5"), command("checkpoint", "inspect " + out),
        command("checkpoint", "verify " + out)}) {
    const Result closed = shell(program + " >&-");
    CAPTURE(program);
    check_refused(closed, 74, {"[stdout] standard output is closed"});
  }
  for (const std::string& program :
       {command("train_gpt", work.small_run()), command("plot", out + " --svg " + work.path("loss.svg")),
        command("prepare_data", fmt::format("--data {} --out {}", work.path("text.txt"), work.path("tokens")))}) {
    CAPTURE(program);
    CHECK(shell(program + " >&-").code == 0);
  }
}

TEST_CASE("files and pipes without an end are refused with name, size and limit") {
  const Workplace work;
  const std::string out = work.path("run"), sparse = work.path("sparse");
  REQUIRE(run("train_gpt", work.small_run() + "--steps 2 --out " + out).code == 0);
  std::ofstream(sparse) << "{";
  fs::resize_file(sparse, std::uintmax_t{1} << 42);
  for (const std::string& program :
       {command("train_gpt", work.small_run() + "--config " + sparse),
        command("train_gpt", work.small_run() + "--tokenizer bpe:" + sparse), command("plot", sparse),
        command("generate", fmt::format("--checkpoint {} --prompt-file {}", out, sparse)),
        command("run", fmt::format("-- {} --config {}", command("train_gpt", "--out q"), sparse))}) {
    CAPTURE(program);
    check_refused(shell(program), 65, {sparse + " has 4398046511104 bytes; expected at most "});
  }
  check_refused(shell(command("generate", fmt::format("--checkpoint {} --prompt-file - </dev/zero", out))), 65,
                {"standard input has more than 67108864 bytes; expected at most 67108864 for a prompt"});
}

TEST_CASE("a loop of links and a current folder that is gone are named as the cause") {
  const Workplace work;
  const std::string out = work.path("run"), loop = work.path("loop"), reason = "Too many levels of symbolic links";
  REQUIRE(run("train_gpt", work.small_run() + "--steps 2 --out " + out).code == 0);
  fs::create_symlink("loop", loop);
  fs::create_symlink("nothing", work.folder / "dangling");
  for (const std::string& program :
       {command("train_gpt", work.small_run() + "--out " + loop),
        command("train_gpt", work.small_run() + "--out " + loop + "/x"),
        command("train_gpt", work.small_run() + "--data " + loop),
        command("train_gpt", work.small_run() + "--config " + loop),
        command("train_gpt", work.small_run() + "--resume " + loop),
        command("generate", "--prompt A --checkpoint " + loop), command("checkpoint", "inspect " + loop),
        command("plot", loop), command("plot", out + " --svg " + loop),
        command("prepare_data", fmt::format("--data {} --out {}", work.path("text.txt"), loop))}) {
    CAPTURE(program);
    check_refused(shell(program), 74, {loop, reason});
  }
  CHECK(fs::is_symlink(loop));
  check_refused(run("train_gpt", work.small_run() + "--out " + work.path("dangling")), 74,
                {work.path("dangling") + " is a symbolic link to nothing"});
  for (const std::string& program :
       {command("train_gpt", work.small_run() + "--out r"), command("train_gpt", work.small_run() + "--resume r"),
        command("generate", "--prompt A --checkpoint r"), command("plot", "r"),
        command("prepare_data", fmt::format("--data {} --out r", work.path("text.txt")))}) {
    CAPTURE(program);
    const Result gone = shell(fmt::format("mkdir {0}; cd {0}; rmdir {0}; {1}", work.path("gone"), program));
    INFO(gone.output);
    CHECK((gone.code == 64 || gone.code == 74));
    CHECK(contains(gone.output, "the current folder was removed"));
    CHECK_FALSE(contains(gone.output, ":  is not a folder"));
  }
}

TEST_CASE("few open files suffice for a checkpoint of many") {
  const Workplace work;
  const std::string out = work.path("run");
  REQUIRE(run("train_gpt", work.small_run() + "--mesh dp=8,tp=2 --micro-batch 1 --steps 2 --out " + out).code == 0);
  REQUIRE(fs::exists(out + "/checkpoints/step_00000002/rank_00015.safetensors"));
  for (const std::string& program :
       {command("checkpoint", "verify " + out), command("checkpoint", fmt::format("diff {} {}", out, out)),
        command("generate", "--checkpoint " + out + " --prompt A --length 2"),
        command("train_gpt", work.small_run() + "--decay-steps 2 --steps 3 --resume " + out)}) {
    const Result few = shell("ulimit -n 16; " + program);
    INFO(few.output);
    CHECK(few.code == 0);
  }
}

TEST_CASE("a signal before training ends the program with 75 and a message") {
  const DefaultHangups hangups;
  const Workplace work;
  const FullPipe stdout_of_run(work.path("pipe"));  // before it trains, the run prints its plan: that waits
  const std::string flags = work.small_run() + endless + "--data " + make_shards(work);
  for (const std::string signal : {"TERM", "INT", "USR2", "HUP"}) {
    CAPTURE(signal);
    // A background job of a script ignores SIGINT unless job control is on.
    const Result ended = shell(fmt::format("set -m; {} >{} & p=$!; trap \"kill -KILL $p\" TERM; {}kill -{} $p; wait $p",
                                           command("train_gpt", flags), work.path("pipe"),
                                           until("grep -qs tokens_00000.tokens /proc/$p/maps"), signal));
    INFO(ended.output);
    CHECK(ended.code == 75);
    CHECK(contains(ended.output, "told to stop before training began"));
    CHECK_FALSE(contains(ended.output, "step 1/"));
  }
}

TEST_CASE("a signal in the first milliseconds ends the program; once it is caught, with 75 and a message") {
  const Workplace work;
  const std::string train = command("train_gpt", work.small_run() + endless);
  const std::string message = "told to stop before training began";
  for (int milliseconds = 0; milliseconds <= 10; ++milliseconds) {
    const Result ended = shell(fmt::format("{} & p=$!; sleep 0.{:03}; kill -TERM $p; wait $p", train, milliseconds));
    INFO(milliseconds, " ms: ", ended.output);
    // Before main() nothing can catch it: the shell then sees the signal itself. After the first steps there is a save.
    CHECK((ended.code == 128 + SIGTERM || ended.code == 75));
    if (ended.code == 75) CHECK((contains(ended.output, message) || contains(ended.output, "preempted")));
  }
  // As soon as the system says that SIGTERM is caught.
  const Result caught = shell(train + " & p=$!; " + until(catches(SIGTERM)) + "kill -TERM $p; wait $p");
  INFO(caught.output);
  CHECK(caught.code == 75);
}

TEST_CASE("values of any length are not repeated whole") {
  const Workplace work;
  const std::string value = "$(head -c 120000 /dev/zero | tr \"\\\\0\" A)";
  for (const std::string flag : {"--gemm", "--data", "--tokenizer", "--mesh", "--pipeline", "--resume",
                                 "--stage-layers", "--recompute", "--loss-scale", "--config", "--no-such-flag"}) {
    const Result refused = shell(fmt::format("{} {} {}", command("train_gpt", work.small_run()), flag, value));
    CAPTURE(flag);
    CHECK((refused.code == 64 || refused.code == 65 || refused.code == 74));
    CHECK(refused.output.size() < 1500);
    CHECK(occurrences(refused.output, "FATAL[") == 1);
  }
  for (const std::string arguments :
       {"generate --prompt A --checkpoint", "generate --checkpoint none --prompt A --dtype", "checkpoint verify",
        "checkpoint diff LICENSE", "checkpoint", "parity --mesh", "schedule --pipeline",
        "prepare_data --out none --data", "prepare_data", "plot", "view", "run --restarts", "train --task"}) {
    const Result refused = shell(fmt::format("{}/{} {}", TRIREME_BIN, arguments, value));
    CAPTURE(arguments);
    CAPTURE(refused.output.substr(0, 500));
    CHECK(refused.code != 0);
    CHECK(refused.output.size() < 1500);
    CHECK(occurrences(refused.output, "FATAL[") == 1);
  }
}

TEST_CASE("a batch that no machine can hold is refused at once, and not with a code that asks for another try") {
  const Workplace work;
  // The ids of so many samples do not fit, whatever the micro-batch.
  check_refused(run("train_gpt", work.small_run() + "--micro-batch 1000000000 --global-batch 1000000000"), 64,
                {"[memory] ", "activations of micro-batch 1000000000 with --recompute none need "});
  check_refused(run("train_gpt", work.small_run() + "--micro-batch 10000000 --global-batch 10000000"), 64,
                {"[memory] ", "activations of micro-batch 10000000 with ", "this fits: --micro-batch "});
  check_refused(run("train_gpt", "--data LICENSE --model gpt2-124m --tokenizer byte --micro-batch 2000000"), 64,
                {"[memory] ", "this fits: --micro-batch "});
  for (const std::string task : {"vit", "sort"}) {
    const Result refused =
        run("train", "--task " + task + " --micro-batch 1000000000 --global-batch 1000000000 --steps 1");
    CAPTURE(task);
    INFO(refused.output);
    CHECK(refused.code == 64);
    CHECK(contains(refused.output, "memory"));
  }
}

TEST_CASE("more micro-batches than a schedule can list are refused at once") {
  const Workplace work;
  for (const std::string mesh : {"dp=1", "pp=2"})
    check_refused(run("train_gpt", work.small_run() + "--global-batch auto --micro-batches 500000000 --mesh " + mesh),
                  64, {"500000000 micro-batches in a step", "expected at most 1048576"});
}

TEST_CASE("control characters in a value do not reach the terminal") {
  const Workplace work;
  for (const std::string flag : {"--data", "--resume", "--tokenizer", "--mesh", "--gemm"}) {
    const Result refused =
        shell(fmt::format("{} {} \"$(printf \"/x/\\\\e[31mred\")\"", command("train_gpt", work.small_run()), flag));
    INFO(refused.output);
    CHECK(refused.code != 0);
    CHECK_FALSE(contains(refused.output, "\x1b"));
    CHECK(contains(refused.output, "\\x1b[31mred"));
  }
}

TEST_CASE("control characters in the name of a run's folder do not reach the terminal") {
  const Workplace work;
  const std::string out = "'" + work.path("a\x1b[31mb\nc") + "'";  // in quotes for the shell
  REQUIRE(run("train_gpt", work.small_run() + "--out " + out).code == 0);
  for (const std::string command : {"inspect ", "verify "}) {
    const Result shown = run("checkpoint", command + out);
    CHECK(shown.code == 0);
    CHECK_FALSE(contains(shown.output, "\x1b"));
    CHECK(contains(shown.output, "\\x1b[31mb\\x0a"));
  }
}

TEST_CASE("flags for outputs replace files of their own kind only") {
  const Workplace work;
  const std::string text = work.path("notes.txt");
  std::ofstream(text) << "notes";
  check_refused(run("schedule", "--svg " + text), 64, {"--svg " + text, "is not a drawing"});
  check_refused(run("plan", "--machine none.json --page " + text), 64, {"--page " + text, "is not a page"});
  check_refused(run("eval", "--checkpoint none --ids none --logits " + text), 64, {"--logits " + text, "not an array"});
  check_refused(run("train_gpt", work.small_run() + "--profile " + text), 64, {"--profile " + text, "not a trace"});
  CHECK(std::filesystem::file_size(text) == 5);
}

TEST_CASE("plot replaces a drawing, and no other file") {
  const Workplace work;
  const std::string out = work.path("run"), metrics = out + "/metrics.jsonl", svg = work.path("loss.svg");
  REQUIRE(run("train_gpt", work.small_run() + "--out " + out).code == 0);
  check_refused(run("plot", out + " --svg " + metrics), 64, {"metrics.jsonl", "is not a drawing"});
  CHECK(run("plot", out + " --svg " + svg).code == 0);
  CHECK(run("plot", out + " --svg " + svg).code == 0);
  CHECK(run("plot", out).code == 0);  // the metrics are whole
}

TEST_CASE("`run` waits for its job also if it was started with SIGCHLD ignored, and does not restart what cannot fit") {
  const Workplace work;
  const auto supervised = [&](const std::string& flags) {
    return shell(
        fmt::format("trap \"\" CHLD; {} {}", command("run", "--"), command("train_gpt", work.small_run() + flags)));
  };
  const Result done = supervised("--out " + work.path("run"));
  INFO(done.output);
  CHECK(done.code == 0);
  const Result refused = supervised("--micro-batch 1000000000 --global-batch 1000000000 --out " + work.path("never"));
  INFO(refused.output);
  CHECK(refused.code == 64);
  CHECK(occurrences(refused.output, "FATAL[64]") == 1);
}

TEST_CASE("the limit of processor time is a request to leave") {
  const Workplace work;
  const std::string out = work.path("run"), log = work.path("log");
  // The limit is set when training has begun, which may take more than the least limit, a second.
  const Result ended =
      shell(started(command("train_gpt", work.small_run() + endless + "--log-every 100 --out " + out), log) +
            until(has_line("^step ", log)) + "prlimit --pid $p --cpu=1: || exit 98; wait $p");
  INFO(content_of(log));
  CHECK(ended.code == 75);
  CHECK(contains(content_of(log), "\npreempted; saved step "));
  CHECK(run("checkpoint", "verify " + out).code == 0);
}

TEST_CASE("flags that would have no effect, or have no value, are refused") {
  const Workplace work;
  check_refused(run("train_gpt", work.small_run() + "--profile \"\""), 64, {"--profile is empty"});
  check_refused(run("train_gpt", work.small_run() + "--global-batch 2 --keep-packed on"), 64,
                {"--keep-packed on with one micro-batch"});
  check_refused(run("train_gpt", work.small_run() + "--optimizer muon --momentum 0 --nesterov on"), 64, {"--nesterov"});
  check_refused(run("train_gpt", work.small_run() + "--optimizer sgd --momentum 0 --moments bf16"), 64, {"--moments"});
  check_refused(run("train_gpt", work.small_run() + "--decay-factor '*.bias=2'"), 64, {"with weight decay", "*.bias"});
  check_refused(run("checkpoint", ""), 64, {"no command is given"});
  check_refused(run("train_gpt", work.small_run() + "--learning-rate 1"), 64, {"did you mean --lr?"});
}

TEST_CASE("every program says its version") {
  for (const std::string program :
       {"train_gpt", "train", "generate", "checkpoint", "parity", "run", "schedule", "prepare_data", "pictures"}) {
    const Result shown = run(program, "--version");
    INFO(shown.output);
    CHECK(shown.code == 0);
    CHECK(contains(shown.output, program + " of Trireme "));
    CHECK(contains(shown.output, "\ncommit "));
    CHECK(contains(shown.output, "\ncompiler "));
  }
}

TEST_CASE("bash completes flags, values and files") {
  const auto completed = [](const std::string& words, int at) {
    return shell(fmt::format("source <({}); COMP_WORDS=({}) COMP_CWORD={}; _train_gpt; echo \"${{COMPREPLY[@]}}\"",
                             command("train_gpt", "--completions bash"), words, at))
        .output;
  };
  CHECK(completed("train_gpt --warmup-s", 1) == "--warmup-steps\n");
  CHECK(completed("train_gpt --dtype b", 2) == "bf16\n");
  CHECK(completed("train_gpt --dtype = b", 3) == "bf16\n");
  CHECK(completed("train_gpt --data LICEN", 2) == "LICENSE\n");
  CHECK(completed("train_gpt --keep-packed o", 2) == "on off\n");
}
