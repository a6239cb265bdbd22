// run: which jobs are started again. Jobs fail, are killed, leave processes behind, or are told to leave. Real training
// runs: run_training_test.cpp.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include "tests/cli/run_support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

TEST_CASE("run: a job that can be started again is, until it is done") {
  const Workplace work;
  const std::string job =
      write_job(work,
                "[ $n = 0 ] && { echo \"trireme: FATAL[75] rank 3 (dp=1) step 9: [mpi] lost\" >&2; exit 75; }\n"
                "[ $n = 1 ] && kill -9 $$\n[ $n = 2 ] && exit 139\nexit 0");
  const Result result = supervise(work, job);
  INFO(result.output);
  CHECK(result.code == 0);
  const std::string arguments = fmt::format("--out {} --resume auto\n", work.path("out"));
  CHECK(content_of(work.path("starts")) == "0 " + arguments + "1 " + arguments + "2 " + arguments + "3 " + arguments);
  CHECK(contains(result.output, "run: the command has no --resume; --resume auto is added\n"));
  CHECK(contains(result.output, "run: the job ended with exit code 75 (a rank was lost or late), rank 3\n"));
  CHECK(contains(result.output,
                 "run: starting again in 0.0 s from the beginning (restart 3; try 3 of 3 for a newer "
                 "checkpoint)\n"));
  CHECK(contains(result.output, "\n3 incidents, "));
  const auto noted = incidents(work);
  REQUIRE(noted.size() == 3);
  CHECK(noted[0]["exit"] == 75);
  CHECK(noted[0]["rank"] == 3);
  CHECK(noted[0]["message"] == "rank 3 (dp=1) step 9: [mpi] lost");
  CHECK(noted[1]["signal"] == 9);
  CHECK(noted[2]["signal"] == 11);  // from exit code 139, as launchers report it
  CHECK(noted[2]["restart"] == 2);
  CHECK(noted[2]["resumed_step"] == 0);
}

TEST_CASE("run: an incident says what the job ended of") {
  const Workplace work;
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"oom@rank=1,step=3", "out of memory"},
      {"flip@rank=1,step=3", "a bit changed in memory"},
      {"stop@rank=1,step=3", "a rank was lost or late"},
  };
  for (const auto& [fault, cause] : faults) {
    CAPTURE(fault);
    fs::remove_all(work.path("out"));
    const Result result = run_with(
        "TRIREME_FAULT=" + fault, "run",
        fmt::format("{} -- {}/train_gpt {} --mesh dp=2 --timeout 1 --check-replicas 1 --allow-fault-injection --out {}",
                    fast, TRIREME_BIN, work.small_run(), work.path("out")));
    INFO(result.output);
    CHECK(result.code == 0);
    CHECK(contains(result.output, fmt::format("run: the job ended with exit code 75 ({}), rank ", cause)));
    CHECK(incidents(work).at(0)["what"] == cause);
    CHECK(contains(result.output, fmt::format("Z  {:<24}  exit 75 ", cause)));
  }
  // A shell or a scheduler may tell a rank to leave, without `run`.
  const Result told = supervise(work, write_job(work, "exit $((n == 0 ? 75 : 0))"));
  CHECK(contains(told.output, "run: the job ended with exit code 75 (told to leave)\n"));
}

TEST_CASE("run: the time that was lost does not depend on the clocks of the day and of the file system") {
  for (const std::string hours : {"-1 hour", "+1 hour"}) {
    CAPTURE(hours);
    const Workplace work;
    const std::string out = work.path("out");
    // The first job saves, the second makes one step more; both leave files with the times of another clock.
    const std::string job = write_job(
        work, fmt::format("if [ $n = 0 ]; then\n"
                          "  {0}/train_gpt {1} --steps 2 \"$@\"; find {2} -exec touch -d '{3}' {{}} +; exit 75\nfi\n"
                          "echo '{{\"step\":3,' >{2}/new; touch -d '{3}' {2}/new; mv {2}/new {2}/metrics.jsonl",
                          TRIREME_BIN, work.small_run(), out, hours));
    const Result result = supervise(work, job);
    INFO(result.output);
    CHECK(result.code == 0);
    const double lost = incidents(work).at(0).value("seconds_lost", -1.0);
    CHECK(lost >= 0);
    CHECK(lost < 3000);
  }
}

TEST_CASE("run: what would end the same way again is not started again") {
  for (const int code : {64, 65, 70, 73, 74, 76, 77, 1, 130}) {
    const Workplace work;
    const Result result = supervise(work, write_job(work, fmt::format("exit {}", code)));
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(occurrences(content_of(work.path("starts")), "\n") == 1);
    CHECK(contains(result.output, ": a restart would end the same way, so it is not restarted\n"));
    if (code == 73) {  // the folder belongs to another run
      CHECK_FALSE(fs::exists(work.path("out")));
      continue;
    }
    CHECK(contains(result.output, "     -              -             -\n"));  // rank, resumed step, seconds lost
    CHECK(incidents(work).at(0)["resumed_step"].is_null());
  }
  const Workplace work;
  CHECK(supervise(work, work.path("absent")).code == 127);
  const Result without = trireme::testing::run("run", "-- true");
  CHECK(without.code == 64);
  CHECK(contains(without.output, "the command has no --out"));
  CHECK(contains(trireme::testing::run("run", "").output, "no command; expected run [FLAGS] -- COMMAND"));
}

TEST_CASE("run: its exit code is the job's, also if nobody reads its output") {
  const Workplace work;
  const std::string run =
      fmt::format("{}/run {} -- {} --out {}", TRIREME_BIN, fast, write_job(work, "exit 65"), work.path("out"));
  // The reader is gone before `run` writes its first line.
  const Result result = shell(fmt::format("{{ sleep 0.3; {} 2>&1; echo $? > {}; }} | true", run, work.path("code")));
  INFO(result.output);
  CHECK(content_of(work.path("code")) == "65\n");
}

TEST_CASE("run: without progress a job is given up, with progress it is not") {
  const Workplace work;
  const Result result = supervise(work, write_job(work, "exit 75"), "--restarts 2");
  INFO(result.output);
  CHECK(result.code == 69);
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 3);
  CHECK(contains(result.output, "run: gave up: 2 restarts without a newer checkpoint than none"));
}

TEST_CASE("run: the next start waits until every process of the last one is gone") {
  const Workplace work;
  // A process in another session, whose parent dies, and which ignores TERM, HUP and INT.
  const std::string left = work.path("left");
  const std::string job =
      write_job(work, fmt::format("if [ $n = 0 ]; then\n"
                                  "  (trap \"\" TERM HUP INT; setsid sleep 1000 & echo $! >{0}; wait) &\n"
                                  "  until [ -s {0} ]; do sleep 0.01; done; kill -9 $$\nfi\n"
                                  "! kill -0 $(cat {0}) 2>/dev/null",
                                  left));
  const Result result = supervise(work, job);
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, "processes of the job have outlived it by"));
  CHECK_FALSE(fs::exists("/proc/" + content_of(left).substr(0, content_of(left).find('\n'))));
}

TEST_CASE("run: a job is told to leave by SIGUSR2, once, and to save by SIGUSR1") {
  const Workplace work;
  const std::string said = work.path("said"), ready = work.path("ready");
  const std::string job =
      write_job(work, fmt::format("trap \"echo save >>{0}\" USR1; trap \"echo leave >>{0}; exit 75\" "
                                  "USR2; mkdir -p {2}; touch {2}/config.json {1}; while :; do sleep 0.02; done",
                                  said, ready, work.path("out")));
  for (const std::string signal : {"TERM", "INT", "USR2"}) {
    CAPTURE(signal);
    fs::remove(said);
    fs::remove(ready);
    // "set -m": without it, background jobs of a shell ignore SIGINT.
    const Result result = shell(fmt::format(
        "set -m; {0}/run {1} -- {2} --out {3} & p=$!; until [ -e {4} ]; do sleep 0.01; done; kill -USR1 $p; "
        "until [ -s {5} ]; do sleep 0.01; done; kill -{6} $p; wait $p",
        TRIREME_BIN, fast, job, work.path("out"), ready, said, signal));
    INFO(result.output);
    CHECK(result.code == 75);
    CHECK(content_of(said) == "save\nleave\n");
    CHECK(contains(result.output, "run: the job is told to save and leave\n"));
    CHECK(contains(result.output, "told to leave"));
    CHECK(contains(result.output, "; run the same command to continue\n"));
  }
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 3);  // no job was started a second time
}

TEST_CASE("run: a job without signal handlers is told to leave again, and told to save only when it has them") {
  const Workplace work;
  const std::string said = work.path("said"), ready = work.path("ready"), log = work.path("log");
  const auto supervise_told = [&](const std::string& body, const std::string& signal) {
    return shell(
        fmt::format("{0}/run {1} -- {2} --out {3} 2>{4} & p=$!; until [ -e {5} ]; do sleep 0.01; done; "
                    "kill -{6} $p; wait $p",
                    TRIREME_BIN, fast, write_job(work, body), work.path("out"), log, ready, signal));
  };
  // The jobs behave as mpirun, which drops signals while it has no ranks, and as ranks, which a signal kills before
  // they have handlers.
  const std::string wait_for = "until grep -qs \"the job is told to save\" " + log + "; do sleep 0.02; done; ";
  const Result left = supervise_told(fmt::format("trap \"\" USR2; touch {}; {} sleep 0.2; trap \"echo leave >>{}; exit "
                                                 "75\" USR2; while :; do sleep 0.02; done",
                                                 ready, wait_for, said),
                                     "TERM");
  INFO(content_of(log));
  CHECK(left.code == 75);
  CHECK(content_of(said) == "leave\n");

  for (const std::string& path : {said, ready, log, work.path("starts")}) fs::remove(path);
  const Result saved = supervise_told(
      fmt::format("touch {0}; {1} sleep 0.2; trap \"echo save >>{2}\" USR1; mkdir -p {3}; touch {3}/config.json; until "
                  "[ -s {2} ]; do sleep 0.02; done",
                  ready, wait_for, said, work.path("out")),
      "USR1");
  INFO(content_of(log));
  CHECK(saved.code == 0);
  CHECK(content_of(said) == "save\n");
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 1);  // SIGUSR1 did not kill it
  CHECK(contains(content_of(log), "run: the job is told to save as soon as it has started\n"));
}

TEST_CASE("run: a job that dies before it saves as it was told: the next one is told") {
  const Workplace work;
  const std::string said = work.path("said"), log = work.path("log"), out = work.path("out");
  // The jobs run `told` when they are told to save, and fail after ten seconds.
  const auto supervise_told = [&](const std::string& told) {
    fs::remove(out + "/config.json");
    const std::string job = write_job(
        work, fmt::format("trap '{0}' USR1; mkdir -p {1}; touch {1}/config.json; for i in $(seq 500); do sleep "
                          "0.02; grep -qs \"told 1\" {2} && exit 0; done; exit 3",
                          told, out, said));
    return shell(
        fmt::format("{0}/run {1} -- {2} --out {3} 2>{4} & p=$!; until [ -e {3}/config.json ]; do sleep 0.01; "
                    "done; kill -USR1 $p; wait $p",
                    TRIREME_BIN, fast, job, out, log));
  };
  // The first job dies of something else at that moment.
  const Result again = supervise_told("echo told $n >>" + said + "; [ $n = 0 ] && kill -9 $$");
  INFO(content_of(log));
  CHECK(again.code == 0);
  CHECK(content_of(said) == "told 0\ntold 1\n");
  CHECK(contains(content_of(log), "run: it was asked to save, and did not: the next job is asked\n"));

  fs::remove(said);
  const Result final = supervise_told("exit 70");
  CHECK(final.code == 70);
  CHECK(contains(content_of(log), "so it is not restarted\nrun: it was asked to save, and did not\n"));
}

TEST_CASE("run: a job that had saved as it was told is not told again") {
  const Workplace work;
  const std::string log = work.path("log"), out = work.path("out");
  const Result result =
      shell(fmt::format("{0}/run {1} -- {0}/train_gpt {2} --mesh dp=2 --steps 2500 --log-every 100 --eval-batches 1 "
                        "--out {3} >{4} 2>&1 & "
                        "p=$!; until grep -q \"^batch \" {4}; do sleep 0.01; done; kill -USR1 $p; until grep -q "
                        "\"; continuing\" {4}; "
                        "do kill -0 $p || exit 98; sleep 0.01; done; kill -9 $(cat /proc/$p/task/*/children); wait $p",
                        TRIREME_BIN, fast, work.small_run(), out, log));
  INFO(content_of(log));
  CHECK(result.code == 0);
  CHECK(contains(content_of(log), "run: the job ended with signal 9 (Killed)"));
  CHECK(occurrences(content_of(log), "; continuing\n") == 1);
  CHECK_FALSE(contains(content_of(log), "the next job is asked"));
}

TEST_CASE("run: when its terminal is closed the job saves and leaves, unless nohup has that ignored") {
  const Workplace work;
  const std::string said = work.path("said"), ready = work.path("ready");
  const std::string job =
      write_job(work, fmt::format("trap \"sleep 0.2; echo leave >>{0}; exit 75\" USR2; trap \"echo hangup >>{0}\" HUP\n"
                                  "touch {1}; for i in $(seq 50); do sleep 0.02; done; exit 0",
                                  said, ready));
  // A shell and the system may both send SIGHUP: the second one does not count as "told again".
  const auto hang_up = [&](const std::string& before) {
    fs::remove(ready);
    return shell(
        fmt::format("{0} {1}/run {2} -- {3} --out {4} & p=$!; until [ -e {5} ]; do sleep 0.01; done; "
                    "kill -HUP $p; sleep 0.05; kill -HUP $p; wait $p",
                    before, TRIREME_BIN, fast, job, work.path("out"), ready));
  };
  const Result left = hang_up("");
  INFO(left.output);
  CHECK(left.code == 75);
  CHECK(content_of(said) == "leave\n");
  CHECK(hang_up("nohup").code == 0);
  CHECK(content_of(said) == "leave\n");
}

TEST_CASE("run: an interrupt that is ignored from the start stays so, as in train_gpt by itself") {
  const Workplace work;
  const std::string log = work.path("log");
  for (const std::string before : {"", "run -- "}) {
    CAPTURE(before);
    fs::remove(log);
    // A shell without job control, such as that of a script, starts background jobs with SIGINT ignored.
    const Result result = shell(fmt::format(
        "{0}/{1}{2}train_gpt {3} --mesh dp=2 --steps 1000000 --out {4} >{5} 2>&1 & p=$!; "
        "until grep -qs \"^step 3/\" {5}; do sleep 0.01; done; kill -INT $p; "
        "most=$(($(grep -c ^step {5}) + 300)); until [ $(grep -c ^step {5}) -gt $most ]; do kill -0 $p || exit 98; "
        "sleep 0.01; done; grep -q \"told to save\\|interrupted\" {5} && exit 97; kill -TERM $p; wait $p",
        TRIREME_BIN, before, before.empty() ? "" : std::string(TRIREME_BIN) + "/", work.small_run(),
        work.path(before.empty() ? "alone" : "below"), log));
    INFO(result.output);
    CHECK(result.code == 75);
  }
}

TEST_CASE("run: a job that does not leave is killed when told twice") {
  const Workplace work;
  const std::string ready = work.path("ready");
  const std::string job =
      write_job(work, fmt::format("trap \"\" USR2 TERM; touch {}; while :; do sleep 0.02; done", ready));
  const Result result = shell(
      fmt::format("{0}/run {1} -- {2} --out {3} 2>{4} & p=$!; until [ -e {5} ]; do sleep 0.01; done; kill -TERM $p; "
                  "until grep -q \"save and leave\" {4}; do sleep 0.01; done; kill -TERM $p; wait $p",
                  TRIREME_BIN, fast, job, work.path("out"), work.path("log"), ready));
  CHECK(result.code == 137);
  CHECK(contains(content_of(work.path("log")), "told to leave again: the job is killed"));
}

TEST_CASE("run: a launcher that does not end after its job has failed, as one that waits for a lost host, is killed") {
  const Workplace work;
  const std::string job = write_job(work,
                                    "[ $n = 0 ] && { echo \"trireme: FATAL[75] rank 3 (dp=1) step 9: [watch] host h2 "
                                    "is gone\" >&2; sleep 1000; }\n"
                                    "[ $n = 1 ] && { echo \"trireme: FATAL[64] [flags] no\" >&2; sleep 1000; }",
                                    "mpirun");
  const Result result = supervise(work, job + " -n 2 train_gpt");
  INFO(result.output);
  CHECK(result.code == 64);  // what the job said counts, not the signal that ended the launcher
  CHECK(occurrences(result.output, "run: the launcher has not ended 5 s after the job failed: it is killed\n") == 2);
  CHECK(contains(result.output, "run: the job ended with exit code 75 (a rank was lost or late), rank 3\n"));
  const auto noted = incidents(work);
  REQUIRE(noted.size() == 2);
  CHECK(noted[0]["exit"] == 75);
  CHECK(noted[0]["rank"] == 3);
  CHECK(noted[1]["exit"] == 64);
}

TEST_CASE("run: times beyond the system's clocks are refused") {
  const Workplace work;
  for (const std::string flag : {"--pause", "--longest-pause", "--grace"})
    check_refused(run("run", flag + " 1e300 -- true --out " + work.path("out")), 64,
                  {flag + ": expected a number in [0, 1000000]"});
}

TEST_CASE("run: a pause ends when the supervisor is told to leave") {
  const Workplace work;
  const Result result =
      shell(fmt::format("{0}/run --pause 1000 --longest-pause 1000 -- {1} --out {2} 2>{3} & p=$!; until grep -q "
                        "\"again in 1000\" {3}; do "
                        "sleep 0.01; done; kill -TERM $p; wait $p",
                        TRIREME_BIN, write_job(work, "exit 75"), work.path("out"), work.path("log")));
  CHECK(result.code == 75);
  CHECK(contains(content_of(work.path("log")), "told to leave while no job runs"));
}

TEST_CASE("run: a job goes on with fewer ranks, and with all again when they are back") {
  const Workplace work;
  const std::string world = work.path("world");
  std::ofstream(world) << "8\n";
  // A command named mpirun counts as a launcher.
  const std::string job = write_job(
      work, fmt::format("case $n in 0) echo 7 >{0}; exit 75;; 1) echo 1 >{0}; exit 137;; esac", world), "mpirun");
  // One rank is too few for tp=2. After the third look that shows one rank, there are eight again.
  const std::string look = work.path("look");
  std::ofstream(look) << fmt::format(
      "#!/bin/bash\ncat {0}\nif [ $(cat {0}) = 1 ]; then echo >>{0}.looks; fi\n"
      "if [ -e {0}.looks ] && [ $(wc -l <{0}.looks) -ge 3 ]; then echo 8 >{0}; fi\n",
      world);
  fs::permissions(look, fs::perms::owner_all);
  const Result result = supervise(work, job + " -n 8 train_gpt --mesh dp=auto,tp=2 --global-batch 16",
                                  fmt::format("--restarts 2 --min-ranks 2 --world-command {}", look));
  INFO(result.output);
  CHECK(result.code == 0);
  const std::string starts = content_of(work.path("starts"));
  CHECK(occurrences(starts, "\n") == 3);
  CHECK(contains(starts, "0 -x TRIREME_RESTARTS -n 8 train_gpt"));
  CHECK(contains(starts, "1 -x TRIREME_RESTARTS -n 4 train_gpt"));  // of 7 ranks 4 can be used: dp=2
  CHECK(contains(starts, "2 -x TRIREME_RESTARTS -n 8 train_gpt"));
  CHECK(contains(result.output, "run: starting 4 of 8 ranks: dp=2\n"));
  CHECK(occurrences(result.output, "run: 1 ranks can be started; expected at least 2 of 8, in steps of 2\n") == 3);
  const auto noted = incidents(work);
  REQUIRE(noted.size() == 2);
  CHECK(noted[0]["ranks"] == 4);
  CHECK(noted[1]["ranks"] == 8);
}

TEST_CASE("run: a world command without an answer is an error at the start, and given up later") {
  const Workplace work;
  const auto script = [&](const std::string& name, const std::string& lines) {
    std::ofstream(work.path(name)) << "#!/bin/bash\n" << lines << "\n";
    fs::permissions(work.path(name), fs::perms::owner_all);
    return work.path(name);
  };
  const std::string job = write_job(work, "exit 75", "mpirun") + " -n 8 train_gpt --mesh dp=auto --global-batch 16";
  const auto with = [&](const std::string& command) {
    return supervise(work, job, fmt::format("--restarts 2 --min-ranks 2 --world-command '{}'", command));
  };
  const Result absent = with("nosuch_command");
  INFO(absent.output);
  CHECK(absent.code == 64);
  CHECK(contains(absent.output,
                 "FATAL[64] [run] --world-command 'nosuch_command' ended with exit code 127 (the "
                 "command was not found) and printed nothing; expected a shell command that prints"));
  CHECK(contains(with("echo many").output, "ended with exit code 0 (done) and printed 'many'; expected"));
  CHECK(with("echo 8; exit 3").code == 64);
  CHECK_FALSE(fs::exists(work.path("starts")));

  const std::string once =
      script("once", fmt::format("[ -e {0} ] && exit 3\ntouch {0}; echo 8 ranks", work.path("asked")));
  const Result later = with(once);
  INFO(later.output);
  CHECK(later.code == 69);
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 1);
  CHECK(contains(later.output, "(2 of 3 failures in a row, after which run gives up)\n"));
  CHECK(contains(later.output, "run: gave up: --world-command has failed 3 times in a row"));

  // A world command that does not end: `run` still ends when it is told to leave.
  const std::string ready = work.path("ready"), log = work.path("log");
  const Result left = shell(fmt::format(
      "{0}/run --min-ranks 2 --world-command {1} -- {2} --out {3} 2>{4} & p=$!; until [ -e {5} ]; do sleep "
      "0.01; done; kill -TERM $p; wait $p",
      TRIREME_BIN, script("never", fmt::format("touch {}; sleep 1000", ready)), job, work.path("out"), log, ready));
  CHECK(left.code == 75);
  CHECK(contains(content_of(log), "told to leave while no job runs"));
}

TEST_CASE("run: without a world command a launcher that fails is asked for fewer ranks") {
  const Workplace work;
  // Fails like mpirun without slots for more than 3 ranks.
  const std::string job = write_job(work, "while [ \"$1\" != -n ]; do shift; done; [ $2 -le 3 ]", "mpirun");
  const Result result =
      supervise(work, job + " -n 64 train_gpt --mesh dp=auto --global-batch 64", "--min-ranks 1 --restarts 0");
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 6);
  CHECK(contains(content_of(work.path("starts")), "5 -x TRIREME_RESTARTS -n 2 train_gpt"));
  CHECK(contains(result.output, "run: the launcher failed to start 64 ranks: trying fewer\n"));

  // If no number of ranks works, each pass over all numbers counts as one try.
  fs::remove(work.path("starts"));
  const Result none = supervise(work, write_job(work, "exit 1", "mpirun") + " -n 8 t --mesh dp=auto --global-batch 8",
                                "--min-ranks 2 --restarts 1");
  INFO(none.output);
  CHECK(none.code == 69);
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 6);  // 8, 4 and 2 ranks, twice
}
