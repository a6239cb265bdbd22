// run: training runs that are killed, resumed or told to leave end as if nothing had happened.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/cli/run_support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

const std::string as_root = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; ";
const std::string two_processes = std::string(TRIREME_MPIEXEC) + " --oversubscribe -n 2";
/// $m becomes the child of $p: the process of a job, or mpirun.
const std::string child_of_p = "m=$(cat /proc/$p/task/*/children | tr -d \" \"); ";

/// Writes a script that starts train_gpt as a rank that writes to `log` itself: mpirun may drop what its ranks print
/// last.
std::string write_rank(const Workplace& work, const std::string& log) {
  return write_script(work, "rank", fmt::format("exec {}/train_gpt \"$@\" >>{} 2>&1", TRIREME_BIN, log));
}

const std::string supervisor_gone =
    "\nwarning: the supervisor that started this job is gone: nothing will start it again\n";

/// What a job prints whose supervisor $p is killed or told to leave by `then`.
std::string log_without_supervisor(bool mpi, const std::string& then) {
  CAPTURE(mpi);
  const Workplace work;
  const std::string log = work.path("log");
  const std::string command =
      fmt::format("-- {} {} {} --mesh dp=2 {} --log-every 100 --out {}", mpi ? two_processes : "",
                  write_rank(work, log), work.small_run(), endless, work.path("out"));
  const Result result =
      shell(as_root + started_run(command, log) + until(has_line("^step 100/", log)) + child_of_p + then +
            "while kill -0 $m 2>/dev/null && ! grep -qs \"^State:.Z\" /proc/$m/status; do sleep 0.02; done; exit 5");
  CHECK(result.code == 5);
  return content_of(log);
}

}  // namespace

TEST_CASE("run: a killed training run ends with the weights of one that was left alone") {
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string flags = work.small_run() + "--mesh dp=2 --dropout 0.1 --steps 1000 --eval-batches 1 ";
    const std::string out = work.path("killed"), log = work.path("log");
    // The child of `run`, or a child of mpirun, is killed after a checkpoint. The first start would block in its last
    // step.
    const std::string victim = mpi ? "$(cat /proc/$m/task/*/children | tr \" \" \"\\n\" | grep . | tail -n 1)" : "$m";
    const std::string command =
        fmt::format("{} -- {} {}/train_gpt {} --checkpoint-every 20 --allow-fault-injection --out {}", fast,
                    mpi ? two_processes : "", TRIREME_BIN, flags, out);
    const Result result =
        shell(as_root + "export TRIREME_FAULT=stop@step=1000; " + started_run(command, log) +
              until(has_line("^saved step 40 ", log)) + child_of_p + "kill -9 " + victim + "; wait $p");
    INFO(content_of(log));
    CHECK(result.code == 0);
    // The other rank may see that one is gone before mpirun does.
    CHECK((contains(content_of(log), "run: the job ended with signal 9 (Killed)") ||
           (mpi && contains(content_of(log), "run: the job ended with exit code 75 (a rank was lost or late)"))));
    CHECK(contains(content_of(log), "1 incident, "));
    CHECK(trireme::testing::run("train_gpt", flags + "--out " + work.path("whole")).code == 0);
    CHECK(trireme::testing::run("checkpoint", fmt::format("diff {} {}", out, work.path("whole"))).code == 0);
    CHECK(metric(out + "/metrics.jsonl", "loss") == metric(work.path("whole/metrics.jsonl"), "loss"));
  }
}

TEST_CASE("run: signals that come while mpirun starts its ranks are not lost") {
  const Workplace work;
  int number = 0;
  const auto told = [&](const std::function<std::string(const std::string&)>& then) {
    const std::string log = work.path(fmt::format("log{}", ++number)), out = work.path(fmt::format("run{}", number));
    const std::string command = fmt::format("{} -- {} {} {} --mesh dp=2 {} --out {}", fast, two_processes,
                                            write_rank(work, log), work.small_run(), endless, out);
    const Result left = shell(as_root + started_run(command, log) + until(has_line("^run: .*mpi", log)) + then(log) +
                              "kill -TERM $p; wait $p");
    INFO(content_of(log));
    CHECK(left.code == 75);
    CHECK_FALSE(contains(content_of(log), "run: starting again"));
    return content_of(log);
  };
  for (const std::string moment : {"0", "0.05"}) {
    CAPTURE(moment);
    told([&](const std::string&) { return "sleep " + moment + "; "; });
    const std::string text = told([&](const std::string& log) {
      return "sleep " + moment + "; kill -USR1 $p; " + until(has_line("; continuing", log));
    });
    CHECK(contains(text, "\npreempted; saved step "));
  }
}

TEST_CASE("run: the reported resumed step is the real one, also if the newest checkpoint is stepped over") {
  const Workplace work;
  const std::string flags = work.small_run() + "--mesh dp=2 --decay-steps 20 --out " + work.path("out");
  CHECK(trireme::testing::run("train_gpt", flags + " --steps 6 --checkpoint-every 3").code == 0);
  // Every start dies in step 7: twice in the first step after the checkpoint of step 6, then in the fourth after that
  // of step 3. Those steps are not saved, so the last start makes them again.
  const Result result =
      run_with("TRIREME_FAULT=kill@step=7,start=any", "run",
               fmt::format("{} -- {}/train_gpt {} --steps 20 --allow-fault-injection", fast, TRIREME_BIN, flags));
  INFO(result.output);
  CHECK(result.code == 69);
  const auto noted = incidents(work);
  REQUIRE(noted.size() == 4);
  CHECK(noted[0]["resumed_step"] == 6);
  CHECK(noted[1]["resumed_step"] == 3);
  CHECK(noted[2]["resumed_step"] == 3);
  CHECK(noted[3]["resumed_step"].is_null());
  CHECK(occurrences(result.output, "\nwarning: stepped over step_00000006: ") == 2);
  CHECK(occurrences(result.output, "\nresuming after step 3 from ") == 2);
  CHECK(contains(result.output, " from step 3 (restart 2; try 2 of 3 for a newer checkpoint)\n"));
}

TEST_CASE("run: when the supervisor itself is killed, the job saves and leaves, and says so") {
  const std::string killed = log_without_supervisor(false, "kill -9 $p; ");
  CHECK_MESSAGE(contains(killed, supervisor_gone + "preempted; saved step "), killed);
  for (const bool mpi : {false, true}) {
    const std::string told = log_without_supervisor(mpi, "kill -TERM $p; wait $p; ");
    CHECK_MESSAGE(contains(told, "\npreempted; saved step "), told);
    CHECK_MESSAGE(!contains(told, supervisor_gone), told);
  }
}

// The system then sends mpirun SIGTERM, after which it gives its ranks two seconds.
TEST_CASE("run: when the supervisor itself is killed, the ranks of mpirun save and leave in time" *
          doctest::test_suite("clock")) {
  const std::string killed = log_without_supervisor(true, "kill -9 $p; ");
  CHECK_MESSAGE(contains(killed, supervisor_gone + "preempted; saved step "), killed);
}

TEST_CASE("run: the SLURM sample queues itself again at its time limit, and only then") {
  const Workplace work;
  write_script(work, "scontrol", "echo \"$*\" >>" + work.path("requeued"));
  // One process with ranks as threads replaces the ranks of a launcher.
  write_script(work, "mpirun",
               "while [ \"$1\" != -n ]; do shift; done; shift 2; exec \"$@\" --ranks threads --mesh dp=2");
  const std::string flags = work.small_run() + "--dropout 0.1 --decay-steps 40 --log-every 1 ";
  const std::string out = work.path("run"), log = work.path("log");
  const auto submit = [&](const std::string& steps, const std::string& then) {
    const std::string sbatch = fmt::format("bash scripts/slurm/train.sbatch {} --steps {} --out {}", flags, steps, out);
    return shell(fmt::format("cd {}/../..; export PATH={}:$PATH SLURM_JOB_ID=77 SLURM_NTASKS=2; {}{}wait $p",
                             TRIREME_BIN, work.path("."), started(sbatch, log), then));
  };
  // The script sets its traps after it has started the job.
  const auto signal_at = [&](const std::string& step, const std::string& signal) {
    return until(has_line("^step " + step + "/", log)) + until(catches(SIGTERM)) + until(catches(SIGUSR2)) + "kill -" +
           signal + " $p; ";
  };
  const std::string most = "1000000000";
  const Result cancelled = submit(most, signal_at("3", "TERM"));
  CHECK(cancelled.code == 75);
  CHECK_FALSE(fs::exists(work.path("requeued")));

  const Result limited = submit(most, signal_at("[0-9]*", "USR2"));
  const std::string text = content_of(log);
  INFO(text);
  CHECK(limited.code == 75);
  CHECK(content_of(work.path("requeued")) == "requeue 77\n");
  CHECK(contains(text, "\nresuming after step "));

  const auto last = static_cast<std::int64_t>(metric(out + "/metrics.jsonl", "step").back());
  const Result done = submit(std::to_string(last + 1), "");
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
  // The first start would block in its last step.
  const std::string command = fmt::format(
      "{} --min-ranks 2 --world-command \"cat {}\" -- {} --oversubscribe -n 4 {}/train_gpt {} --checkpoint-every 20 "
      "--allow-fault-injection --out {}",
      fast, world, TRIREME_MPIEXEC, TRIREME_BIN, flags, out);
  const Result result = shell(as_root + "export TRIREME_FAULT=stop@step=150; " + started_run(command, log) +
                              until(has_line("^saved step 40 ", log)) + "echo 3 >" + world + "; " + child_of_p +
                              "kill -9 $(cat /proc/$m/task/*/children); wait $p");
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
