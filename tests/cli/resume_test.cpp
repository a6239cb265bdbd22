// --resume auto from the command line: what makes it skip a checkpoint and what does not, disk errors, folders that
// also contain files of the user, and runs that have to start again.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// A run of six steps with checkpoints after steps 3 and 6, and how to resume it.
struct Begun {
  explicit Begun(const std::string& mesh = "") {
    flags = work.small_run() + mesh + " --decay-steps 20 --allow-fault-injection --out " + out + " ";
    const Result result = run("train_gpt", flags + "--checkpoint-every 3");
    INFO(result.output);
    REQUIRE(result.code == 0);
  }
  Result go_on(const std::string& more, const std::string& variables = "A=1") const {
    return run_with(variables, "train_gpt", flags + "--resume auto " + more);
  }
  /// Checks the step from which the next start would resume; changes nothing.
  void check_goes_on_from(int step) const {
    const Result result = go_on("--steps 9 --dry-run");
    INFO(result.output);
    CHECK(result.code == 0);
    CHECK(contains(result.output, fmt::format("\nresuming after step {} from ", step)));
    CHECK_FALSE(contains(result.output, "stepped over"));
  }

  Workplace work;
  std::string out = work.path("run"), flags;
};

void end_twice(const Begun& begun, int code, const std::string& more, const std::string& variables = "A=1") {
  for (int time = 0; time < 2; ++time) {
    const Result result = begun.go_on(more, variables);
    CHECK_MESSAGE(result.code == code, result.output);
  }
}

}  // namespace

TEST_CASE("a command that is refused, or ends with a reason of its own, says nothing against the checkpoint") {
  const Begun begun("--mesh dp=2");
  std::ofstream(begun.work.folder / "other.txt") << std::string(3000, 'a') + std::string(3000, 'b');
  const auto twice = [&](int code, const std::string& more, const std::string& variables = "A=1") {
    INFO(more, " ", variables);
    end_twice(begun, code, more, variables);
    begun.check_goes_on_from(6);
  };
  twice(64, "--steps 9 --seed 7");
  twice(64, "--steps 9 --layers 1");
  twice(64, "--steps 9 --optimizer sgd");
  twice(64, "--steps 9 --freeze wte.weight");  // its state would be lost
  twice(64, "--steps 9 --data " + begun.work.path("other.txt"));
  twice(74, "--steps 9", "TRIREME_IO_FAULT=kind=eio,call=open,path=metrics.jsonl");
  twice(70, "--steps 9", "TRIREME_FAULT=throw@step=7,rank=1");
  twice(75, "--steps 9", "TRIREME_FAULT=oom@step=7");
  twice(77, "--steps 9 --max-skipped 1", "TRIREME_FAULT=nan@step=7,times=9");
  const Result last = begun.go_on("--steps 8");
  INFO(last.output);
  CHECK(contains(last.output, "\nresuming after step 6 from "));
}

TEST_CASE("the reason of one of several processes says nothing against the checkpoint either") {
  const Begun begun("--mesh dp=2");
  for (int time = 0; time < 2; ++time) {
    const Result result = shell(
        fmt::format("export TRIREME_FAULT=throw@step=7,rank=1 OMPI_ALLOW_RUN_AS_ROOT=1 "
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {} --oversubscribe -n 2 {}/train_gpt {} --steps 9 --resume auto",
                    TRIREME_MPIEXEC, TRIREME_BIN, begun.flags));
    CHECK_MESSAGE((result.code == 70 || result.code == 75), result.output);  // the other rank may end first
  }
  begun.check_goes_on_from(6);
}

TEST_CASE("two runs that die in their first step have the checkpoint stepped over, unless it is the only one") {
  const Begun begun;
  end_twice(begun, 137, "--steps 9", "TRIREME_FAULT=kill@step=7");
  const Result over = begun.go_on("--steps 9", "TRIREME_FAULT=throw@step=4");
  INFO(over.output);
  CHECK(contains(
      over.output,
      "\nwarning: stepped over step_00000006: 2 runs that resumed from there died before they had made a step\n"));
  CHECK(contains(over.output, "\nresuming after step 3 from "));
  fs::remove_all(begun.out + "/checkpoints/step_00000003");
  begun.check_goes_on_from(6);
}

TEST_CASE("a run that stepped over a checkpoint and then dies has no gap in its metrics") {
  const Begun begun;
  end_twice(begun, 137, "--steps 9", "TRIREME_FAULT=kill@step=7");
  CHECK(begun.go_on("--steps 9", "TRIREME_FAULT=kill@step=5").code == 137);
  const Result last = begun.go_on("--steps 9");
  INFO(last.output);
  CHECK(last.code == 0);
  CHECK(contains(last.output, "\nresuming after step 3 from "));
  const std::string metrics = content_of(begun.out + "/metrics.jsonl");
  for (int step = 1; step <= 9; ++step) CHECK(occurrences(metrics, fmt::format("{{\"step\":{},", step)) == 1);
}

TEST_CASE("a full disk leaves the checkpoints of a run usable") {
  const Begun begun;
  const Result full = begun.go_on("--steps 9", "TRIREME_IO_FAULT=kind=enospc,call=write,path=config.json");
  INFO(full.output);
  CHECK(full.code == 74);
  CHECK(contains(full.output, "run/config.json: No space left on device"));
  CHECK(contains(full.output, "; what is saved in " + begun.out +
                                  " is as it was: make room, or mend what failed, and the same command"));
  CHECK_FALSE(contains(full.output, "another --out"));
  CHECK_FALSE(contains(full.output, "skipped"));
  const Result marked = begun.go_on("--steps 8", "TRIREME_IO_FAULT=kind=enospc,call=write,path=resuming");
  INFO(marked.output);
  CHECK(marked.code == 0);
  CHECK(contains(marked.output, "\nresuming after step 6 from "));
  CHECK(contains(marked.output, "/resuming: No space left on device"));
  CHECK(contains(marked.output, "; training goes on without that note\n"));
}

TEST_CASE("what the file system refuses to show is not taken for damage") {
  const Begun begun;
  const fs::path newest = begun.out + "/checkpoints/step_00000006";
  const auto refused = [&](const std::string& variables, const std::string& what) {
    const Result result = begun.go_on("--steps 9", variables);
    INFO(result.output);
    CHECK(result.code == 74);
    CHECK(contains(result.output, what));
    CHECK(contains(result.output, "it may be whole"));
    CHECK_FALSE(contains(result.output, "skipped"));
  };
  for (const std::string file : {"manifest.json", "rank_00000.safetensors"}) {
    refused("TRIREME_IO_FAULT=kind=eio,call=open,path=step_00000006/" + file,
            (newest / file).string() + ": Input/output error");
    fs::rename(newest / file, newest / "moved");
    fs::create_symlink(file, newest / file);  // to itself
    refused("A=1", (newest / file).string() + ": Too many levels of symbolic links");
    fs::remove(newest / file);
    fs::rename(newest / "moved", newest / file);
  }
  begun.check_goes_on_from(6);
}

TEST_CASE("copies that a user keeps among the checkpoints are neither removed nor resumed from") {
  const Begun begun;
  const fs::path all = begun.out + "/checkpoints";
  const std::vector<std::string> copies = {"step_00000003.bak", "step_00000003-best",    "step_3",
                                           "step_000000006",    "step_00000006.tmp.old", "step_00000006.del.me"};
  for (const std::string& name : copies) fs::copy(all / "step_00000006", all / name);
  fs::remove_all(all / "step_00000006");
  const Result result = begun.go_on("--steps 5 --keep 1");
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, "\nresuming after step 3 from "));
  CHECK_FALSE(contains(result.output, "skipped"));
  for (const std::string& name : copies) CHECK_MESSAGE(fs::exists(all / name / "manifest.json"), name);
  CHECK(fs::exists(all / "step_00000005"));
  CHECK_FALSE(fs::exists(all / "step_00000003"));
  CHECK(contains(run("checkpoint", "verify " + begun.out).output, "step_00000005: step 5, "));
  CHECK(run("checkpoint", "verify " + (all / "step_00000003-best").string()).code == 0);
}

TEST_CASE("a run that has to begin again says so, and keeps the metrics there were") {
  const Workplace work;
  const std::string flags = work.small_run() + "--out " + work.path("run") + " --resume auto --allow-fault-injection ";
  const Result first = run_with("TRIREME_FAULT=throw@step=4", "train_gpt", flags);
  CHECK(first.code == 70);
  CHECK_FALSE(contains(first.output, "begins anew"));
  const std::vector<std::string> made = results(work.path("run/metrics.jsonl"));
  REQUIRE(made.size() == 3);
  const Result second = run_with("TRIREME_FAULT=throw@step=3", "train_gpt", flags + "--seed 5 ");
  INFO(second.output);
  const std::string line = fmt::format(
      "\nbegins anew: {0} holds no checkpoint of the run that began there; its metrics are kept in {0}/"
      "metrics_before.jsonl\n",
      work.path("run"));
  CHECK(contains(second.output, line));
  CHECK(results(work.path("run/metrics_before.jsonl")) == made);
  std::vector<std::string> all = made;
  for (const std::string& step : results(work.path("run/metrics.jsonl"))) all.push_back(step);
  REQUIRE(all.size() == 5);
  const Result third = run("train_gpt", flags);
  CHECK(third.code == 0);
  CHECK(contains(third.output, line));
  CHECK(results(work.path("run/metrics_before.jsonl")) == all);
  CHECK(results(work.path("run/metrics.jsonl")).size() == 6);
}

TEST_CASE("a larger --steps stretches the schedule: a warning names both learning rates, and --decay-steps avoids it") {
  const Workplace work;
  const std::string flags = work.small_run() + "--out " + work.path("run") + " ";
  CHECK(run("train_gpt", flags).code == 0);
  const std::string more = flags + "--steps 12 --resume auto ";
  CHECK_FALSE(contains(run("train_gpt", more + "--decay-steps 6 --dry-run").output, "stretched"));
  CHECK_FALSE(contains(run("train_gpt", more + "--lr-schedule constant --dry-run").output, "stretched"));
  const std::string output = run("train_gpt", more).output;
  INFO(output);
  CHECK(contains(output,
                 "\nwarning: --steps is 12 now and was 6: the schedule is stretched, and the learning rate goes "
                 "on with "));
  CHECK(contains(output, "e-04 instead of 1.00e-04; --decay-steps 6 keeps it\n"));
  CHECK(contains(run("train_gpt", more + "--steps 13 --lr-schedule constant --dry-run").output,
                 "\nwarning: the schedule is not the one that the run had (cosine after 2 steps of warm-up, of 12 "
                 "steps): the learning rate goes on with 1.00e-03 instead of 1.00e-04\n"));
}

TEST_CASE("a value of --resume that is neither a known word nor an existing path is named") {
  const Begun begun;
  const auto refused = [&](const std::string& value, const std::string& what) {
    const Result result = run("train_gpt", begun.flags + "--resume " + value);
    INFO(result.output);
    CHECK(result.code == 64);
    CHECK(contains(result.output, "FATAL[64] [resume] " + what));
    CHECK_FALSE(contains(result.output, "already holds a run"));
  };
  const std::string expected = "; expected auto, none, or the path of what an earlier run saved";
  refused("autoo", "--resume autoo: there is no such file or folder" + expected + "; the nearest is auto\n");
  refused("None", "--resume None: there is no such file or folder" + expected + "; the nearest is none\n");
  refused(begun.work.path("other_run"), "--resume " + begun.work.path("other_run") +
                                            ": there is no such file or folder" + expected + "; change --resume\n");
  const std::string manifest = begun.out + "/checkpoints/step_00000006/manifest.json";
  for (const std::string& file : {manifest, begun.work.path("text.txt")})
    refused(file, "--resume " + file + " is a file" + expected +
                      ": a run's folder, its checkpoints, or one of them; change --resume\n");
}

TEST_CASE("ranks that are given different values of --resume are told so") {
  const Begun begun("--mesh dp=2");
  const std::string train = fmt::format("-n 1 {}/train_gpt {} --steps 9 ", TRIREME_BIN, begun.flags);
  const auto start = [&] {
    return shell(fmt::format(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {} --oversubscribe {} --resume auto : {}",
        TRIREME_MPIEXEC, train, train));
  };
  check_ranks_refused(start, 64, {"--resume differs between ranks: \"auto\" on rank 0; \"none\" on rank 1"});
}

TEST_CASE("ranks that see other checkpoints under one path go on from the one that rank 0 chooses") {
  const Begun begun("--mesh dp=2");
  const Workplace& work = begun.work;
  const auto folder = [&](const char* rank) { return work.folder / rank; };
  for (const char* rank : {"rank_0", "rank_1"}) {
    fs::create_directories(folder(rank));
    fs::copy(begun.out, folder(rank) / "run", fs::copy_options::recursive);
  }
  const fs::path step_6 = "run/checkpoints/step_00000006", step_3 = "run/checkpoints/step_00000003";
  fs::remove_all(folder("rank_0") / step_6);
  const auto go_on = [&] {
    return run_mpi_with({"-C " + work.path("rank_0"), "-C " + work.path("rank_1")}, "train_gpt",
                        work.small_run() + "--mesh dp=2 --decay-steps 20 --steps 9 --resume run");
  };
  const Result together = go_on();
  INFO(together.output);
  CHECK(together.code == 0);
  CHECK(contains(together.output, "\nresuming after step 3 from run/checkpoints/step_00000003\n"));
  CHECK(contains(together.output, "\nstep 9/9 | "));

  const Result other =
      run("train_gpt",
          work.small_run() + "--mesh dp=2 --decay-steps 20 --checkpoint-every 3 --lr 0.01 --out " + work.path("other"));
  REQUIRE(other.code == 0);
  fs::remove_all(folder("rank_1") / step_3);
  fs::copy(work.folder / "other/checkpoints/step_00000003", folder("rank_1") / step_3, fs::copy_options::recursive);
  check_ranks_refused(go_on, 64,
                      {"FATAL[64] [configuration] the checkpoint differs between ranks: " + step_3.string(),
                       ") on rank 1; expected one; give every rank the same files: "});
}

TEST_CASE("a resumed run says which part of the optimizer's state it does not keep") {
  const Workplace work;
  const std::string flags = work.small_run() + "--out " + work.path("run") + " ";
  REQUIRE(run("train_gpt", flags + "--ema-decay 0.9 --optimizer sgd --momentum 0.9").code == 0);
  const std::string more = flags + "--optimizer sgd --steps 8 --resume auto --dry-run ";
  const auto warns = [&](const std::string& options) {
    return contains(run("train_gpt", more + options).output, "which this run does not keep");
  };
  CHECK_FALSE(warns("--ema-decay 0.9 --momentum 0.9"));
  CHECK(warns("--momentum 0.9"));
  CHECK(warns("--ema-decay 0.9 --momentum 0"));
}
