// run: training runs that are killed, resumed or told to leave end as if nothing had happened.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/cli/run_support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

TEST_CASE("run: a killed training run ends with the weights of one that was left alone") {
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string flags = work.small_run() + "--mesh dp=2 --dropout 0.1 --steps 1000 --eval-batches 1 ";
    const std::string out = work.path("killed"), log = work.path("log"), killed = work.path("pid");
    const std::string launcher = mpi ? fmt::format("{} --oversubscribe -n 2 ", TRIREME_MPIEXEC) : std::string();
    // The child of `run`, or a child of mpirun, is killed after a checkpoint, long before the end of the run.
    const std::string victim = mpi ? "$(cat /proc/$m/task/*/children | tr \" \" \"\\n\" | grep . | tail -n 1)" : "$m";
    const Result result = shell(fmt::format(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {0}/run {1} -- {2} {0}/train_gpt {3} "
        "--checkpoint-every 20 --out {4} >{5} 2>&1 & p=$!; until grep -q \"^saved step 40 \" {5}; do sleep 0.01; done; "
        "m=$(cat /proc/$p/task/*/children | tr -d \" \"); kill -9 {6}; wait $p",
        TRIREME_BIN, fast, launcher, flags, out, log, victim));
    INFO(content_of(log));
    CHECK(result.code == 0);
    CHECK(contains(content_of(log), "run: the job ended with signal 9 (Killed)"));
    CHECK(contains(content_of(log), "1 incident, "));
    CHECK(trireme::testing::run("train_gpt", flags + "--out " + work.path("whole")).code == 0);
    CHECK(trireme::testing::run("checkpoint", fmt::format("diff {} {}", out, work.path("whole"))).code == 0);
    CHECK(metric(out + "/metrics.jsonl", "loss") == metric(work.path("whole/metrics.jsonl"), "loss"));
  }
}

TEST_CASE("run: signals that come while mpirun starts its ranks are not lost") {
  const Workplace work;
  int number = 0;
  const auto started = [&](const std::string& then) {
    const std::string log = work.path(fmt::format("log{}", ++number)), out = work.path(fmt::format("run{}", number));
    const Result left = shell(fmt::format(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {0}/run {1} -- {2} --oversubscribe -n 2 "
        "{0}/train_gpt {3} --mesh dp=2 --steps 1000000 --out {4} >{5} 2>&1 & p=$!; "
        "until grep -qs \"^run: .*mpi\" {5}; do sleep 0.001; done; {6}; wait $p",
        TRIREME_BIN, fast, TRIREME_MPIEXEC, work.small_run(), out, log, then));
    INFO(content_of(log));
    CHECK(left.code == 75);
    CHECK_FALSE(contains(content_of(log), "run: starting again"));
    return content_of(log);
  };
  for (const char* wait : {"0", "0.05"}) {
    CAPTURE(wait);
    started(fmt::format("sleep {}; kill -TERM $p", wait));
    const std::string text = started(fmt::format(
        "sleep {}; kill -USR1 $p; until grep -q \"; continuing\" {}; do kill -0 $p || exit 98; sleep 0.01; done; kill "
        "-TERM $p",
        wait, work.path(fmt::format("log{}", number + 1))));
    CHECK(contains(text, "\npreempted; saved step "));
  }
}

TEST_CASE("run: the reported resumed step is the real one, also if the newest checkpoint is stepped over") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=2 --decay-steps 20 --out " + work.path("out");
  CHECK(trireme::testing::run("train_gpt", flags + " --steps 6 --checkpoint-every 3").code == 0);
  // Every start dies in step 7: twice in the first step after the checkpoint of step 6, then in the fourth after that
  // of step 3, then after step 6 again.
  const Result result =
      run_with("TRIREME_FAULT=kill@step=7,start=any", "run",
               fmt::format("{} -- {}/train_gpt {} --steps 20 --allow-fault-injection", fast, TRIREME_BIN, flags));
  INFO(result.output);
  CHECK(result.code == 69);
  const auto noted = incidents(work);
  REQUIRE(noted.size() == 4);
  CHECK(noted[0]["resumed_step"] == 6);
  CHECK(noted[1]["resumed_step"] == 3);
  CHECK(noted[2]["resumed_step"] == 6);
  CHECK(noted[3]["resumed_step"].is_null());
  CHECK(occurrences(result.output, "\nwarning: stepped over step_00000006: ") == 1);
  CHECK(occurrences(result.output, "\nresuming after step 3 from ") == 1);
  CHECK(contains(result.output, " from step 3 (restart 2; try 2 of 3 for a newer checkpoint)\n"));
}

TEST_CASE("run: when the supervisor itself is killed, the job saves and leaves, and says so") {
  const std::string gone = "\nwarning: the supervisor that started this job is gone: nothing will start it again\n";
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string log = work.path("log");
    const std::string launcher = mpi ? fmt::format("{} --oversubscribe -n 2 ", TRIREME_MPIEXEC) : std::string();
    // Few lines are logged: an mpirun that was told to end no longer reads what its ranks print, and they would block.
    // `then` kills the supervisor, so that the launcher or the system tells the job to leave, or it tells the
    // supervisor to leave.
    const auto left_after = [&](const std::string& then) {
      fs::remove_all(work.path("out"));
      fs::remove(log);
      const Result result = shell(fmt::format(
          "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {0}/run -- {1} {0}/train_gpt {2} --mesh "
          "dp=2 --steps 1000000 --log-every 100 --out {3} >{4} 2>&1 & p=$!; until grep -qs \"^step 100/\" {4}; do "
          "sleep 0.01; done; "
          "m=$(cat /proc/$p/task/*/children | tr -d \" \"); {5}; "
          "while kill -0 $m 2>/dev/null && ! grep -q \"^State:.Z\" /proc/$m/status; do sleep 0.02; done; exit 5",
          TRIREME_BIN, launcher, work.small_run(), work.path("out"), log, then));
      CHECK(result.code == 5);
      CHECK(contains(content_of(log), "\npreempted; saved step "));
      return content_of(log);
    };
    const std::string killed = left_after("kill -9 $p");
    CHECK_MESSAGE(contains(killed, gone + "preempted; "), killed);
    const std::string told = left_after("kill -TERM $p; wait $p");
    CHECK_MESSAGE(!contains(told, gone), told);
  }
}

TEST_CASE("run: the SLURM sample queues itself again at its time limit, and only then") {
  const Workplace work;
  const auto stand_in = [&](const std::string& name, const std::string& lines) {
    std::ofstream(work.path(name)) << "#!/bin/bash\n" << lines << "\n";
    fs::permissions(work.path(name), fs::perms::owner_all);
  };
  stand_in("scontrol", "echo \"$*\" >>" + work.path("requeued"));
  // One process with ranks as threads replaces the ranks of a launcher.
  stand_in("mpirun", "while [ \"$1\" != -n ]; do shift; done; shift 2; exec \"$@\" --ranks threads --mesh dp=2");
  const std::string flags = work.small_run() + "--dropout 0.1 --decay-steps 40 --log-every 1 ";
  const std::string out = work.path("run"), log = work.path("log");
  const auto submit = [&](const std::string& steps, const std::string& then) {
    fs::remove(log);  // left by the previous submission
    return shell(
        fmt::format("cd {0}/../..; export PATH={1}:$PATH SLURM_JOB_ID=77 SLURM_NTASKS=2; "
                    "bash scripts/slurm/train.sbatch {2} --steps {3} --out {4} >{5} 2>&1 & p=$!; {6}; wait $p",
                    TRIREME_BIN, work.path("."), flags, steps, out, log, then));
  };
  const auto signal_at = [&](const std::string& step, const std::string& signal) {
    return fmt::format("until grep -qs \"^step {}/\" {}; do kill -0 $p || exit 99; sleep 0.01; done; kill -{} $p", step,
                       log, signal);
  };
  const Result cancelled = submit("1000000", signal_at("3", "TERM"));
  CHECK(cancelled.code == 75);
  CHECK_FALSE(fs::exists(work.path("requeued")));

  const Result limited = submit("1000000", signal_at("[0-9]*", "USR2"));
  const std::string text = content_of(log);
  INFO(text);
  CHECK(limited.code == 75);
  CHECK(content_of(work.path("requeued")) == "requeue 77\n");
  CHECK(contains(text, "\nresuming after step "));

  const auto last = static_cast<std::int64_t>(metric(out + "/metrics.jsonl", "step").back());
  const Result done = submit(std::to_string(last + 1), "true");
  INFO(content_of(log));
  CHECK(done.code == 0);
  CHECK(content_of(work.path("requeued")) == "requeue 77\n");
  CHECK(trireme::testing::run("train_gpt",
                              fmt::format("{} --mesh dp=2 --steps {} --out {}", flags, last + 1, work.path("whole")))
            .code == 0);
  CHECK(trireme::testing::run("checkpoint", fmt::format("diff {} {}", out, work.path("whole"))).code == 0);
}

TEST_CASE("run: a run that goes on with half its ranks has the losses of one that kept them, but for rounding") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=auto,tp=2 --dropout 0.1 --steps 150 --eval-batches 1 ";
  const std::string out = work.path("shrunk"), log = work.path("log"), world = work.path("world");
  std::ofstream(world) << "4\n";
  const std::string launcher = fmt::format("{} --oversubscribe -n ", TRIREME_MPIEXEC);
  const Result result = shell(fmt::format(
      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; {0}/run {1} --min-ranks 2 --world-command "
      "\"cat {2}\" -- {3} 4 {0}/train_gpt {4} --checkpoint-every 20 --out {5} >{6} 2>&1 & p=$!; "
      "until grep -q \"^saved step 40 \" {6}; do kill -0 $p || exit 99; sleep 0.01; done; echo 3 >{2}; "
      "m=$(cat /proc/$p/task/*/children | tr -d \" \"); kill -9 $(cat /proc/$m/task/*/children); wait $p",
      TRIREME_BIN, fast, world, launcher, flags, out, log));
  INFO(content_of(log));
  CHECK(result.code == 0);
  CHECK(contains(content_of(log), "mesh             dp=2,tp=2,pp=1 = 4 ranks"));
  CHECK(contains(content_of(log), "run: starting 2 of 4 ranks: dp=1\n"));
  CHECK(contains(content_of(log), "mesh             dp=1,tp=2,pp=1 = 2 ranks"));
  CHECK(trireme::testing::run("train_gpt", work.small_run() +
                                               "--mesh dp=2,tp=2 --dropout 0.1 --steps 150 "
                                               "--eval-batches 1 --out " +
                                               work.path("whole"))
            .code == 0);
  const auto shrunk = metric(out + "/metrics.jsonl", "loss"), whole = metric(work.path("whole/metrics.jsonl"), "loss");
  REQUIRE(shrunk.size() == 150);
  REQUIRE(whole.size() == 150);
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(shrunk[i] == doctest::Approx(whole[i]).epsilon(1e-4));
}
