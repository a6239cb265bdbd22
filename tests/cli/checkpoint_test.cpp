// Checkpoints from the command line: runs that are killed and resumed, also on another mesh, damage, and the checkpoint
// program.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/cli/support.h"
#include "tests/support/virtual_terminal.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

std::string succeed(const std::string& program, const std::string& arguments) {
  const Result result = run(program, arguments);
  INFO(program, " ", arguments, "\n", result.output);
  REQUIRE(result.code == 0);
  return result.output;
}

void flip(const fs::path& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const auto at = file.tellg();
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(byte);
}

std::vector<std::string> checkpoints_in(const std::string& out) {
  std::vector<std::string> names;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(out + "/checkpoints", absent))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());  // not best.json
  std::sort(names.begin(), names.end());
  return names;
}

/// checkpoints_in() without unfinished saves.
std::vector<std::string> find_whole(const std::string& out) {
  std::vector<std::string> names = checkpoints_in(out);
  std::erase_if(names, [](const std::string& name) { return contains(name, ".tmp."); });
  return names;
}

}  // namespace

TEST_CASE("a run that is killed again and again ends where it would have ended") {
  const Workplace work;
  const std::string flags = work.small_run() + "--steps 60 --dropout 0.1 --mesh dp=2,tp=2 --zero 1 ";
  succeed("train_gpt", flags + "--out " + work.path("whole"));
  const std::string again =
      flags + "--checkpoint-every 2 --keep 2 --keep-best off --resume auto --allow-fault-injection --out " +
      work.path("killed");
  const std::string log = work.path("log");
  // What each kill waits for: nothing, a step, a save that begins, one that is complete, the third of this start; or
  // the last step, in which a run blocks that is not killed before. Of two starts in a row, one makes a step; otherwise
  // a checkpoint would be stepped over.
  const std::vector<std::string> moments = {"true", has_line("^step .* | loss ", log),
                                            "compgen -G \"" + work.path("killed") + "/checkpoints/*.tmp.*\" >/dev/null",
                                            has_line("^saved step ", log),
                                            "[ $(grep -c \"^saved step \" " + log + ") -ge 3 ]"};
  for (std::size_t kill = 0; kill < 2 * moments.size(); ++kill) {
    const std::string& moment = moments[kill % moments.size()];
    CAPTURE(moment);
    const Result result = shell(
        "export TRIREME_FAULT=stop@step=60; " + started(fmt::format("{}/train_gpt {}", TRIREME_BIN, again), log) +
        until(fmt::format("{{ {} || {}; }}", moment, has_line("injected fault", log))) + "kill -KILL $p; wait $p");
    CHECK_MESSAGE(result.code == 137, content_of(log));
    // Whenever the run is killed, every folder with the name of a checkpoint is an intact one.
    for (const std::string& name : checkpoints_in(work.path("killed"))) {
      if (name.find('.') == std::string::npos)
        succeed("checkpoint", "verify " + work.path("killed/checkpoints/" + name));
    }
  }
  const std::string output = succeed("train_gpt", again);
  INFO(output);
  CHECK(!results(work.path("whole/metrics.jsonl")).empty());
  CHECK(results(work.path("killed/metrics.jsonl")) == results(work.path("whole/metrics.jsonl")));
  CHECK(contains(succeed("checkpoint", "diff " + work.path("killed") + " " + work.path("whole")), "equal: "));
  CHECK(checkpoints_in(work.path("killed")) == std::vector<std::string>{"step_00000058", "step_00000060"});
}

TEST_CASE("on another mesh a run goes on with the samples that come next") {
  const Workplace work;
  const std::string flags = work.small_run() + "--steps 12 --dropout 0.1 ";
  succeed("train_gpt", flags + "--mesh dp=1 --out " + work.path("one"));
  // The same run in four parts, each on another mesh.
  const std::string parts = flags + "--decay-steps 12 --out " + work.path("parts") + " --resume auto ";
  succeed("train_gpt", parts + "--steps 3 --mesh dp=2 --zero 3");
  succeed("train_gpt", parts + "--steps 6 --mesh dp=4 --zero 1");
  succeed("train_gpt", parts + "--steps 9 --mesh cp=2,tp=2");
  succeed("train_gpt", parts + "--steps 12 --mesh dp=2,pp=2 --micro-batch 4");
  CHECK(metric(work.path("parts/metrics.jsonl"), "tokens") == metric(work.path("one/metrics.jsonl"), "tokens"));
  const auto one = metric(work.path("one/metrics.jsonl"), "loss"),
             four = metric(work.path("parts/metrics.jsonl"), "loss");
  REQUIRE(one.size() == 12);
  REQUIRE(four.size() == 12);
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - four[i]) <= 1e-4 * one[i]);
  // Of the time of a forward, that in which it waited for data is taken off, in the first step too.
  for (const double ms : metric(work.path("parts/metrics.jsonl"), "forward_ms")) CHECK(ms >= 0);
  // A run that has made all its steps has nothing left to do.
  const std::string output = succeed("train_gpt", parts);
  CHECK(output.starts_with("warning: nothing to do: "));  // without the plan
  CHECK_FALSE(contains(output, "saved step"));
}

TEST_CASE("routers' biases are saved: a run with experts continues on another mesh as if uninterrupted") {
  const Workplace work;
  const std::string flags =
      work.small_run() + "--experts 4 --top-k 1 --bias-update 0.05 --router-norm before --decay-steps 8 ";
  succeed("train_gpt", flags + "--steps 8 --mesh dp=2 --out " + work.path("one"));
  const std::string parts = flags + "--resume auto --out " + work.path("parts");
  succeed("train_gpt", parts + " --steps 4 --mesh dp=2,ep=2");
  succeed("train_gpt", parts + " --steps 8 --mesh dp=2,tp=2,ep=2");
  for (const char* key : {"loss", "expert_imbalance", "aux_loss"}) {
    const auto one = metric(work.path("one/metrics.jsonl"), key), two = metric(work.path("parts/metrics.jsonl"), key);
    REQUIRE(one.size() == 8);
    REQUIRE(two.size() == 8);
    for (std::size_t i = 0; i < 8; ++i) CHECK_MESSAGE(std::abs(one[i] - two[i]) <= 1e-4 * one[i], key, " ", i);
  }
}

TEST_CASE("processes save as threads do") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=2,tp=2 --zero 2 --checkpoint-every 2 ";
  succeed("train_gpt", flags + "--out " + work.path("threads"));
  const Result mpi = run_mpi(4, "train_gpt", flags + "--out " + work.path("mpi"));
  INFO(mpi.output);
  REQUIRE(mpi.code == 0);
  CHECK(occurrences(mpi.output, "saved step 2 in ") == 1);
  CHECK(checkpoints_in(work.path("mpi")) ==
        std::vector<std::string>{"step_00000002", "step_00000004", "step_00000006"});
  for (const std::string step : {"/checkpoints/step_00000004", ""})
    CHECK(contains(succeed("checkpoint", "diff " + work.path("mpi") + step + " " + work.path("threads") + step),
                   "equal: "));
  // Resume from there on fewer ranks.
  const Result more =
      run_mpi(2, "train_gpt", work.small_run() + "--steps 8 --mesh dp=auto --resume auto --out " + work.path("mpi"));
  CHECK_MESSAGE(more.code == 0, more.output);
  CHECK(contains(more.output, "resuming after step 6"));
}

TEST_CASE("damage is refused with file and bytes, or stepped over") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=2 --decay-steps 9 ";
  succeed("train_gpt", flags + "--checkpoint-every 3 --out " + work.path("run"));
  const fs::path newest = work.folder / "run/checkpoints/step_00000006";
  flip(newest / "rank_00001.safetensors", 100);
  for (const Result& result :
       {run("train_gpt", flags + "--steps 9 --resume " + work.path("run") + " --out " + work.path("run")),
        run("checkpoint", "verify " + work.path("run"))}) {
    INFO(result.output);
    CHECK(result.code == 65);
    CHECK(occurrences(result.output, "trireme: FATAL[65] ") == 1);
    CHECK(contains(result.output, (newest / "rank_00001.safetensors").string() + ": chunk 0, bytes 0 to "));
  }
  const std::string output = succeed("train_gpt", flags + "--steps 9 --resume auto --out " + work.path("run"));
  INFO(output);
  CHECK(contains(output, "skipped step_00000006: " + newest.string()));
  CHECK(contains(output, "resuming after step 3"));
  CHECK(contains(output, "saved step 9"));
  // metrics.jsonl has every step once.
  CHECK(metric(work.path("run/metrics.jsonl"), "step") == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("auto goes on from the checkpoints there are, without config.json too") {
  const Workplace work;
  const std::string flags = work.small_run() + "--out " + work.path("run");
  succeed("train_gpt", flags);
  fs::remove(work.path("run/config.json"));
  const std::string output = succeed("train_gpt", flags + " --steps 8 --resume auto");
  CHECK(contains(output, "resuming after step 6 from "));
  CHECK(metric(work.path("run/metrics.jsonl"), "step") == std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(fs::exists(work.path("run/config.json")));
}

TEST_CASE("a run that every rank gives up finishes the save that is under way") {
  const Workplace work;
  const auto check = [&](const std::string& name, const std::string& fault, const std::string& flags, int code) {
    const Result result = run_with("TRIREME_FAULT='" + fault + "'", "train_gpt",
                                   work.small_run() + "--max-skipped 1 --checkpoint-every 4 --allow-fault-injection " +
                                       flags + " --out " + work.path(name));
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(contains(result.output, "saved step 4 in "));
    CHECK_FALSE(contains(result.output, ", 0.000 s; training"));
    CHECK(checkpoints_in(work.path(name)) == std::vector<std::string>{"step_00000004"});
    CHECK(run("checkpoint", "verify " + work.path(name)).code == 0);
  };
  // Slow, so that the time of the save is no 0 even where it takes none.
  const std::string slow = "slow@step=5,ms=5;";
  check("nan", slow + "nan@step=5,times=50", "--mesh dp=2,tp=2 --zero 1", 77);
  check("nan1", slow + "nan@step=5,times=50", "", 77);
  check("throw", slow + "throw@step=5", "", 70);
}

TEST_CASE("a run that one of its ranks ends says that the save under way is lost") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=2 --checkpoint-every 2 --allow-fault-injection ";
  const auto failed = [&](const std::string& name, const std::string& fault, bool mpi) {
    const auto start = [&] {
      fs::remove_all(work.path(name));
      const std::string arguments = flags + "--out " + work.path(name), variable = "TRIREME_FAULT='" + fault + "'";
      return mpi ? run_mpi_with({variable, variable}, "train_gpt", arguments)
                 : run_with(variable, "train_gpt", arguments);
    };
    const Result result = mpi ? with_message(start) : start();
    INFO(result.output);
    CHECK((result.code == 70 || (mpi && result.code == 75)));  // the other rank may end first
    CHECK(occurrences(result.output, "trireme: FATAL[70] rank ") == 1);
    return result.output;
  };
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const std::string kind = mpi ? "mpi" : "threads";
    for (const int rank : {0, 1}) {
      CAPTURE(rank);
      const std::string name = fmt::format("{}{}", kind, rank);
      const std::string output = failed(name, fmt::format("throw@step=5,rank={}", rank), mpi);
      CHECK(contains(output,
                     "; the save of step 4 was under way and is lost; the newest checkpoint is that of step 2\n"));
      CHECK(find_whole(work.path(name)) == std::vector<std::string>{"step_00000002"});
    }
    CHECK(contains(failed(kind + "first", "throw@step=2,rank=1,point=save", mpi),
                   "; the save of step 2 was under way and is lost; this run has saved nothing before\n"));
    CHECK_FALSE(contains(failed(kind + "none", "throw@step=2,rank=1", mpi), "is lost"));  // no save was under way
  }
  const std::string resumed = succeed("train_gpt", flags + "--resume auto --out " + work.path("threads1"));
  CHECK(contains(resumed, "resuming after step 2 from "));

  // Step 3 is slow, so the save of step 2 has probably written all files when step 4 fails. Rank 0, a thread of the
  // same process, then completes the commit that it has begun.
  const std::string late = failed("late", "slow@step=3,rank=all,ms=200;throw@step=4,rank=1", false);
  const bool whole = find_whole(work.path("late")) == std::vector<std::string>{"step_00000002"};
  CHECK(contains(late, "; the save of step 2 was being committed: it is whole if " +
                           work.path("late/checkpoints/step_00000002") + " is there\n") == whole);
  CHECK(contains(late, "; the save of step 2 was under way and is lost") == !whole);
}

TEST_CASE("a save under way that fails when the run fails is reported") {
  const Workplace work;
  const Result result =
      run_with("TRIREME_FAULT=throw@step=5 TRIREME_IO_FAULT=kind=enospc,call=write,path=rank_00000", "train_gpt",
               work.small_run() + "--checkpoint-every 4 --allow-fault-injection --out " + work.path("full"));
  INFO(result.output);
  CHECK(result.code == 70);
  CHECK(contains(result.output, "\nwarning: could not save step 4: "));
  CHECK(checkpoints_in(work.path("full")).empty());
}

TEST_CASE("a run whose folder is moved away does not make another") {
  const Workplace work;
  const std::string log = work.path("log");
  const std::string train = fmt::format("{}/train_gpt {} {} --log-every 1000 --checkpoint-every 20 --keep 2 --out {}",
                                        TRIREME_BIN, work.small_run(), endless, work.path("run"));
  // A save that is under way has a longer name.
  const std::string saved = "compgen -G \"" + work.path("run") + "/checkpoints/step_????????\" >/dev/null";
  const Result result = shell(
      fmt::format("{}{}mv {} {}; wait $p", started(train, log), until(saved), work.path("run"), work.path("moved")));
  const std::string text = content_of(log);
  INFO(text);
  CHECK(result.code == 74);
  CHECK(contains(text, "[out] " + work.path("run") + " is no longer the folder in which this run began"));
  CHECK_FALSE(fs::exists(work.path("run")));
  CHECK(run("checkpoint", "verify " + work.path("moved")).code == 0);
}

TEST_CASE("the folder of a run's checkpoints means its newest, and other data is named as such") {
  const Workplace work;
  succeed("train_gpt", work.small_run() + "--out " + work.path("run"));
  for (const std::string path : {"run", "run/", "run/checkpoints", "run/checkpoints/"})
    CHECK(contains(succeed("checkpoint", "verify " + work.path(path)), "step 6, "));
  CHECK(contains(succeed("train_gpt", work.small_run() + "--steps 7 --resume " + work.path("run/checkpoints") +
                                          " --out " + work.path("run")),
                 "resuming after step 6"));
  std::ofstream(work.folder / "other.txt") << std::string(3000, 'a') + std::string(3000, 'b');
  const Result other = run("train_gpt", work.small_run() + "--steps 9 --data " + work.path("other.txt") +
                                            " --resume auto --out " + work.path("run"));
  INFO(other.output);
  CHECK(other.code == 64);
  CHECK(contains(other.output,
                 "another tokenizer than this data gives: other.txt is new (6000 bytes); use the same "
                 "--data and --tokenizer"));
  std::ofstream(work.folder / "run/checkpoints/step_00000007/manifest.json") << "{";
  const Result damaged = run("checkpoint", "verify " + work.path("run"));
  CHECK(damaged.code == 65);
  CHECK(contains(damaged.output, "train_gpt --resume auto"));
}

TEST_CASE("the checkpoint program inspects, verifies and compares") {
  const Workplace work;
  succeed("train_gpt", work.small_run() + "--mesh dp=2,pp=2 --zero 3 --out " + work.path("a"));
  succeed("train_gpt", work.small_run() + "--mesh dp=2,pp=2 --zero 2 --out " + work.path("b"));
  const std::string shown = succeed("checkpoint", "inspect " + work.path("a") + " --tensors");
  INFO(shown);
  CHECK(contains(shown, "\nstep          6\n"));
  CHECK(contains(shown, "\nloss          3."));
  CHECK(contains(shown, " UTC by Trireme "));
  CHECK(contains(shown, "\nwritten by    dp=2,tp=1,pp=2 = 4 ranks\n"));
  CHECK(contains(shown, "layers 2, "));  // the model in words
  CHECK_FALSE(contains(shown, "{"));
  CHECK(contains(shown, "rank_00003.safetensors ("));
  CHECK_FALSE(contains(shown, "\"micro-batch\": 2"));
  CHECK(contains(succeed("checkpoint", "inspect " + work.path("a") + " --configuration"), "\"micro-batch\": 2"));
  CHECK(occurrences(succeed("checkpoint", "inspect " + work.path("a")), "\n") <= 24);
  CHECK(contains(shown, "\noptimizer.m.wte.weight  f32 [40, 16]\n"));
  CHECK(contains(shown, " in rank_0000"));
  CHECK(contains(succeed("checkpoint", "verify " + work.path("a")), ": whole\n"));
  CHECK(contains(succeed("checkpoint", "diff " + work.path("a") + " " + work.path("b")), "bit for bit"));
  succeed("train_gpt", work.small_run() + "--seed 3 --out " + work.path("c"));
  const Result differs = run("checkpoint", "diff " + work.path("a") + " " + work.path("c"));
  CHECK(differs.code == 1);
  CHECK(differs.output.starts_with("different: "));
  CHECK(contains(differs.output, "\ntensor "));
  CHECK(contains(differs.output, " 640 of 640 "));
  CHECK(differs.output.find("\nwte.weight ") < differs.output.find("\noptimizer."));
  for (const std::string& arguments : {"inspect " + work.path("a"), "diff " + work.path("a") + " " + work.path("c")}) {
    for (const int columns : {60, 80}) {
      VirtualTerminal terminal(columns);
      terminal.write(run_on_terminal(columns, "", "checkpoint", arguments).output);
      for (const std::string& line : terminal.lines()) CHECK_MESSAGE(static_cast<int>(line.size()) <= columns, line);
    }
  }
  CHECK(run("checkpoint", "").code == 64);
  CHECK(run("checkpoint", "inspect " + work.path("a") + " --tensor").code == 64);
  CHECK(run("checkpoint", "look " + work.path("a")).code == 64);
  CHECK(run("checkpoint", "inspect " + work.path("nothing")).code == 64);
  for (const std::string command : {"verify --help", "inspect -h", "diff a --help"})
    CHECK(contains(succeed("checkpoint", command), "usage:   checkpoint inspect PATH"));
}

TEST_CASE("the checkpoint program says what a path should have been") {
  const Workplace work;
  succeed("train_gpt", work.small_run() + "--checkpoint-every 3 --out " + work.path("run"));
  const auto failed = [&](const std::string& arguments, int code, const std::string& what) {
    const Result result = run("checkpoint", arguments);
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(contains(result.output, what));
  };
  const std::string saved = work.path("run/checkpoints/step_00000006");
  for (const std::string& file : {work.path("text.txt"), saved + "/manifest.json"})
    failed("inspect " + file, 64,
           file +
               " is a file; expected a folder: the --out of train_gpt, its checkpoints, or one of them; change the "
               "path");
  fs::rename(saved + "/manifest.json", saved + "/moved");
  for (const std::string& path : {saved, saved + "/", work.path("run")})
    failed("verify " + path, 65, saved + ": no manifest: its saving was interrupted");
  const std::string gone = work.path("run/checkpoints/step_00000002");
  failed("verify " + gone, 64, gone + " is not there; expected a checkpoint; a run with --keep may have removed it");
}

TEST_CASE("a run saves by the clock") {
  const Workplace work;
  // Every step takes more minutes than these.
  const std::string output = succeed(
      "train_gpt", work.small_run() + "--mesh dp=2 --steps 30 --checkpoint-minutes 1e-9 --out " + work.path("run"));
  CHECK(occurrences(output, "\nsaved step ") == 30);
  CHECK(contains(output, "\nsaved step 30 in "));
  CHECK(checkpoints_in(work.path("run")).size() == 30);
}

TEST_CASE("flags of checkpoints that cannot be followed are refused") {
  const Workplace work;
  const auto refused = [&](const std::string& flags, const std::string& part) {
    const Result result = run("train_gpt", work.small_run() + flags);
    INFO(result.output);
    CHECK(result.code == 64);
    CHECK(contains(result.output, part));
  };
  for (const std::string flag : {"--checkpoint-every 2", "--checkpoint-minutes 0.5", "--keep 1"})
    refused(flag, "has no effect with --out none");
  refused("--resume auto", "--resume auto continues the run in the folder of --out, and --out is none");
  refused("--keep 0 --out " + work.path("x"), "--keep");
  refused("--checkpoint-minutes -1 --out " + work.path("x"), "--checkpoint-minutes");
}
