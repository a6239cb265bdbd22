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
  struct Fault {
    std::string text, cause, flags;
  };
  const std::vector<Fault> faults = {
      {"oom@rank=1,step=3", "out of memory", ""},
      {"flip@rank=1,step=3", "a bit changed in memory", ""},
      {"stop@rank=1,step=3", "a rank was lost or late", "--timeout 1"},
  };
  for (const auto& [fault, cause, flags] : faults) {
    CAPTURE(fault);
    fs::remove_all(work.path("out"));
    // Only the first start has the short timeout: the second may take its time.
    const std::string job =
        write_job(work, fmt::format("[ $n = 0 ] && flags=\"{}\"\nexec {}/train_gpt $* $flags", flags, TRIREME_BIN));
    const Result result =
        run_with("TRIREME_FAULT=" + fault, "run",
                 fmt::format("{} -- {} {} --mesh dp=2 --check-replicas 1 --allow-fault-injection --out {}", fast, job,
                             work.small_run(), work.path("out")));
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
  // The reader is gone before `run` writes its first line: then the signal SIGPIPE ends a subshell that writes.
  const Result result = shell(
      fmt::format("{{ while (echo); do sleep 0.01; done; {} 2>&1; echo $? > {}; }} | true", run, work.path("code")));
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
                                  "  (trap \"\" TERM HUP INT; setsid sleep infinity & echo $! >{0}; wait) &\n"
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
  const std::string said = work.path("said"), ready = work.path("ready"), log = work.path("log");
  const std::string job =
      write_job(work, fmt::format("trap \"echo save >>{0}\" USR1; trap \"echo leave >>{0}; exit 75\" "
                                  "USR2; mkdir -p {2}; touch {2}/config.json {1}; while :; do sleep 0.02; done",
                                  said, ready, work.path("out")));
  for (const std::string signal : {"TERM", "INT", "USR2"}) {
    CAPTURE(signal);
    for (const std::string& path : {said, ready, work.path("out/config.json")}) fs::remove(path);
    // "set -m": without it, background jobs of a shell ignore SIGINT.
    const Result result =
        shell(fmt::format("set -m; {}{}kill -USR1 $p; {}kill -{} $p; wait $p",
                          started_run(fmt::format("{} -- {} --out {}", fast, job, work.path("out")), log),
                          until(exists(ready)), until(has_content(said)), signal));
    INFO(content_of(log));
    CHECK(result.code == 75);
    CHECK(content_of(said) == "save\nleave\n");
    CHECK(contains(content_of(log), "run: the job is told to save and leave\n"));
    CHECK(contains(content_of(log), "told to leave"));
    CHECK(contains(content_of(log), "; run the same command to continue\n"));
  }
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 3);  // no job was started a second time
}

TEST_CASE("run: Ctrl-Z stops the job too, and fg lets both go on") {
  const Workplace work;
  const std::string ready = work.path("ready"), go = work.path("go"), log = work.path("log");
  const std::string job = write_job(
      work, fmt::format("echo $$ >{0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.02; done", ready, go));
  const auto stopped = [](const std::string& process) {
    return fmt::format("[ \"$(cut -d' ' -f3 /proc/{}/stat)\" = T ]", process);
  };
  const std::string job_process = fmt::format("$(cat {})", ready);
  const Result result = shell(
      fmt::format("set -m; {}{}kill -TSTP $p; {}{}kill -CONT $p; {}touch {}; wait $p",
                  started_run(fmt::format("{} -- {} --out {}", fast, job, work.path("out")), log), until(exists(ready)),
                  until(stopped(job_process)), until(stopped("$p")), until("! " + stopped(job_process)), go));
  INFO(content_of(log));
  CHECK(result.code == 0);
}

TEST_CASE("run: a job without signal handlers is told to leave again, and told to save only when it has them") {
  const Workplace work;
  const std::string said = work.path("said"), ready = work.path("ready"), log = work.path("log");
  const auto supervise_told = [&](const std::string& body, const std::string& signal) {
    return shell(
        fmt::format("{}{}kill -{} $p; wait $p",
                    started_run(fmt::format("{} -- {} --out {}", fast, write_job(work, body), work.path("out")), log),
                    until(exists(ready)), signal));
  };
  // The jobs behave as mpirun, which drops signals while it has no ranks, and as ranks, which a signal kills before
  // they have handlers.
  const Result left = supervise_told(
      fmt::format("dropped=0; trap dropped=1 USR2; touch {}; until [ $dropped = 1 ]; do sleep 0.02; done\n"
                  "trap \"trap : USR2; echo leave >>{}; exit 75\" USR2; while :; do sleep 0.02; done",
                  ready, said),
      "TERM");
  INFO(content_of(log));
  CHECK(left.code == 75);
  CHECK(content_of(said) == "leave\n");

  for (const std::string& path : {said, ready, work.path("starts")}) fs::remove(path);
  // A signal that comes too early has a fifth of a second to kill the job.
  const Result saved = supervise_told(
      fmt::format("touch {0}; until grep -qs \"the job is told to save\" {1}; do sleep 0.02; done; sleep 0.2\n"
                  "trap \"echo save >>{2}\" USR1; mkdir -p {3}; touch {3}/config.json\n"
                  "until [ -s {2} ]; do sleep 0.02; done",
                  ready, log, said, work.path("out")),
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
  // The jobs run `told` when they are told to save. Each gives config.json another time, as a job that starts later.
  const auto supervise_told = [&](const std::string& told) {
    fs::remove(out + "/config.json");
    const std::string job =
        write_job(work, fmt::format("trap '{0}' USR1; mkdir -p {1}; touch -d @$((1000000000 + n)) {1}/config.json\n"
                                    "until grep -qs \"told 1\" {2}; do sleep 0.02; done",
                                    told, out, said));
    return shell(started_run(fmt::format("{} -- {} --out {}", fast, job, out), log) +
                 until(exists(out + "/config.json")) + "kill -USR1 $p; wait $p");
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
  // The first start goes on until it is killed, the second makes nine steps more.
  const std::string job = write_job(
      work,
      fmt::format(
          "steps=1000000000\n"
          "[ $n = 0 ] || steps=$(($(ls {1}/checkpoints | sed -n \"s/^step_0*\\([0-9]*\\)$/\\1/p\" | tail -n 1) + 9))\n"
          "exec {0}/train_gpt $* --steps $steps",
          TRIREME_BIN, out));
  const Result result =
      shell(fmt::format("{}{}kill -USR1 $p; {}kill -9 $(cat /proc/$p/task/*/children); wait $p",
                        started_run(fmt::format("{} -- {} {} --mesh dp=2 --log-every 100 --eval-batches 1 --out {}",
                                                fast, job, work.small_run(), out),
                                    log),
                        until(has_line("^batch ", log)), until(has_line("; continuing", log))));
  INFO(content_of(log));
  CHECK(result.code == 0);
  CHECK(contains(content_of(log), "run: the job ended with signal 9 (Killed)"));
  CHECK(occurrences(content_of(log), "; continuing\n") == 1);
  CHECK_FALSE(contains(content_of(log), "the next job is asked"));
}

TEST_CASE("run: when its terminal is closed the job saves and leaves, unless nohup has that ignored") {
  const DefaultHangups hangups;
  const Workplace work;
  const std::string said = work.path("said"), ready = work.path("ready"), leaving = work.path("leaving"),
                    hung_up = work.path("hung_up"), log = work.path("log");
  // The job ends after the second hangup, also while it is leaving.
  const std::string job = write_job(
      work, fmt::format("trap \"trap : USR2; touch {2}; until [ -e {3} ]; do sleep 0.01; done; echo leave >>{0}; exit "
                        "75\" USR2\ntrap \"echo hangup >>{0}\" HUP; touch {1}; until [ -e {3} ]; do sleep 0.02; done",
                        said, ready, leaving, hung_up));
  // A shell and the system may both send SIGHUP: the second one does not count as "told again". A supervisor that obeys
  // it has a fifth of a second to do so.
  const auto hang_up = [&](const std::string& before, const std::string& after_first) {
    fs::remove(ready);
    fs::remove(hung_up);
    return shell(fmt::format(
        "{}{}kill -HUP $p; {}; kill -HUP $p; sleep 0.2; touch {}; wait $p",
        started(fmt::format("{} {}/run {} -- {} --out {}", before, TRIREME_BIN, fast, job, work.path("out")), log),
        until(exists(ready)), after_first, hung_up));
  };
  const Result left = hang_up("", until(exists(leaving)) + "true");
  INFO(content_of(log));
  CHECK(left.code == 75);
  CHECK(content_of(said) == "leave\n");
  CHECK(hang_up("nohup", "true").code == 0);
  CHECK(content_of(said) == "leave\n");
}

TEST_CASE("run: an interrupt that is ignored from the start stays so, as in train_gpt by itself") {
  const Workplace work;
  const std::string log = work.path("log");
  for (const std::string before : {"", "run -- "}) {
    CAPTURE(before);
    // A shell without job control, such as that of a script, starts background jobs with SIGINT ignored.
    const std::string command = fmt::format("{0}/{1}{2}train_gpt {3} --mesh dp=2 {4} --out {5}", TRIREME_BIN, before,
                                            before.empty() ? "" : std::string(TRIREME_BIN) + "/", work.small_run(),
                                            endless, work.path(before.empty() ? "alone" : "below"));
    const std::string steps = "$(grep -c ^step " + log + ")";
    const Result result = shell(fmt::format(
        "{0}{1}kill -INT $p; most=$(({2} + 300)); {3}grep -q \"told to save\\|interrupted\" {4} && exit 97; "
        "kill -TERM $p; wait $p",
        started(command, log), until(has_line("^step 3/", log)), steps, until("[ " + steps + " -gt $most ]"), log));
    INFO(result.output);
    CHECK(result.code == 75);
  }
}

TEST_CASE("run: a job that does not leave is killed when told twice") {
  const Workplace work;
  const std::string ready = work.path("ready"), log = work.path("log");
  const std::string job =
      write_job(work, fmt::format("trap \"\" USR2 TERM; touch {}; while :; do sleep 0.02; done", ready));
  const Result result =
      shell(fmt::format("{}{}kill -TERM $p; {}kill -TERM $p; wait $p",
                        started_run(fmt::format("{} -- {} --out {}", fast, job, work.path("out")), log),
                        until(exists(ready)), until(has_line("save and leave", log))));
  CHECK(result.code == 137);
  CHECK(contains(content_of(log), "told to leave again: the job is killed"));
}

TEST_CASE("run: a launcher that does not end after its job has failed, as one that waits for a lost host, is killed") {
  const Workplace work;
  const std::string job = write_job(work,
                                    "[ $n = 0 ] && { echo \"trireme: FATAL[75] rank 3 (dp=1) step 9: [watch] host h2 "
                                    "is gone\" >&2; sleep infinity; }\n"
                                    "[ $n = 1 ] && { echo \"trireme: FATAL[64] [flags] no\" >&2; sleep infinity; }",
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
  const std::string log = work.path("log");
  const std::string arguments = fmt::format("--pause 1000000 --longest-pause 1000000 -- {} --out {}",
                                            write_job(work, "exit 75"), work.path("out"));
  const Result result =
      shell(started_run(arguments, log) + until(has_line("again in 1000000", log)) + "kill -TERM $p; wait $p");
  CHECK(result.code == 75);
  CHECK(contains(content_of(log), "told to leave while no job runs"));
}

TEST_CASE("run: a job goes on with fewer ranks, and with all again when they are back") {
  const Workplace work;
  const std::string world = work.path("world");
  std::ofstream(world) << "8\n";
  // A command named mpirun counts as a launcher.
  const std::string job = write_job(
      work, fmt::format("case $n in 0) echo 7 >{0}; exit 75;; 1) echo 1 >{0}; exit 137;; esac", world), "mpirun");
  // One rank is too few for tp=2. After the third look that shows one rank, there are eight again.
  const std::string lines = fmt::format(
      "cat {0}\nif [ $(cat {0}) = 1 ]; then echo >>{0}.looks; fi\n"
      "if [ -e {0}.looks ] && [ $(wc -l <{0}.looks) -ge 3 ]; then echo 8 >{0}; fi\n",
      world);
  const Result result =
      supervise(work, job + " -n 8 train_gpt --mesh dp=auto,tp=2 --global-batch 16",
                fmt::format("--restarts 2 --min-ranks 2 --world-command {}", write_script(work, "look", lines)));
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
      write_script(work, "once", fmt::format("[ -e {0} ] && exit 3\ntouch {0}; echo 8 ranks", work.path("asked")));
  const Result later = with(once);
  INFO(later.output);
  CHECK(later.code == 69);
  CHECK(occurrences(content_of(work.path("starts")), "\n") == 1);
  CHECK(contains(later.output, "(2 of 3 failures in a row, after which run gives up)\n"));
  CHECK(contains(later.output, "run: gave up: --world-command has failed 3 times in a row"));

  // A world command that does not end: `run` still ends when it is told to leave.
  const std::string ready = work.path("ready"), log = work.path("log");
  const std::string never = write_script(work, "never", fmt::format("touch {}; sleep infinity", ready));
  const Result left = shell(
      started_run(fmt::format("--min-ranks 2 --world-command {} -- {} --out {}", never, job, work.path("out")), log) +
      until(exists(ready)) + "kill -TERM $p; wait $p");
  INFO(content_of(log));
  if (!contains(content_of(log), "has not ended within 60 s")) {  // `run` gave up before it was told
    CHECK(left.code == 75);
    CHECK(contains(content_of(log), "told to leave while no job runs"));
  }
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
