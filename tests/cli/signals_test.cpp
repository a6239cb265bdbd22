// Signals to a run: it saves and ends, or saves and continues, and nothing else changes.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/cli/support.h"

using namespace trireme::testing;

namespace signals_test {
namespace {

const std::string flags = "--mesh dp=2 --dropout 0.1 --decay-steps 40 ";

const std::string step_3 = "^step 3/", blocked = "injected fault: stop";

/// Lines of shell that start `command` with all output in `log`, wait for a line with `pattern`, run `then` with its
/// process id in $p, and end with its exit code.
std::string at(const std::string& pattern, const std::string& command, const std::string& log,
               const std::string& then) {
  return fmt::format("{}{}{}; wait $p", started(command, log), until(has_line(pattern, log)), then);
}

std::string train(const std::string& arguments) { return fmt::format("{}/train_gpt {}", TRIREME_BIN, arguments); }

/// As one process, or as two under a launcher, which write to `log` themselves.
std::string train_as(bool mpi, const std::string& arguments, const std::string& log) {
  return mpi ? two_ranks("train_gpt", arguments, log, log) : train(arguments);
}

/// Lines of shell that interrupt $p, and again once the message of the first interrupt is in `log`.
std::string interrupt_twice(const std::string& log) {
  return "kill -INT $p; " + until(has_line("^interrupted:", log)) + "kill -INT $p";
}

/// The number that the first group of `pattern` matches in `text`; -1 without a match.
std::int64_t step_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::atoll(match[1].str().c_str()) : -1;
}

/// Runs a line of shell as the leader of a session with its own terminal, which is closed after step 3 of the run.
Result on_closed_terminal(const std::string& line) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  const std::string name = ::ptsname(terminal);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGHUP, SIG_DFL);  // as in DefaultHangups
    ::setsid();
    const int side = ::open(name.c_str(), O_RDWR);  // the first one that a leader opens becomes the session's
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(side, stream);
    ::alarm(1800);
    ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  Result result;
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while (!contains(result.output, " 3/1000000000 | loss") &&
         (count = ::read(terminal, buffer.data(), buffer.size())) > 0)
    result.output.append(buffer.data(), static_cast<std::size_t>(count));
  ::close(terminal);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

TEST_CASE("a closed terminal is a request to leave: saved, 75, though nobody reads the last lines") {
  const Workplace work;
  for (const std::string before : {"exec ", "exec @/run -- "}) {
    CAPTURE(before);
    const std::string out = work.path(before == "exec " ? "alone" : "supervised");
    std::string start = before;
    if (const std::size_t at = start.find('@'); at != std::string::npos) start.replace(at, 1, TRIREME_BIN);
    const std::string run = work.small_run() + flags + endless + "--out " + out;
    const Result left = on_closed_terminal(fmt::format("{}{}/train_gpt {}", start, TRIREME_BIN, run));
    INFO(left.output);
    CHECK(left.code == 75);
    const Result saved = trireme::testing::run("checkpoint", "inspect " + out);
    CHECK(saved.code == 0);
    CHECK(contains(saved.output, "step_0"));
  }
}

TEST_CASE("a hangup acts as SIGTERM, also with output in a pipe that breaks, and is ignored under nohup") {
  const DefaultHangups hangups;
  const Workplace work;
  const std::string log = work.path("log"), run = train(work.small_run() + flags);
  const Result left = shell(at(step_3, run + endless + "--out " + work.path("run"), log, "kill -HUP $p"));
  INFO(shell("cat " + log).output);
  CHECK(left.code == 75);
  CHECK(contains(shell("cat " + log).output, "\npreempted; saved step "));

  const std::string pipe = work.path("pipe");
  const Result piped = shell(fmt::format(
      "mkfifo {0}; {1} >{0} 2>{2} & p=$!; exec 3<{0}; grep -q \"^step 3/\" <&3 || exit 99; kill -HUP $p; exec 3<&-; "
      "wait $p",
      pipe, run + endless + "--out " + work.path("piped"), log));
  INFO(shell("cat " + log).output);
  CHECK(piped.code == 75);
  CHECK(trireme::testing::run("checkpoint", "inspect " + work.path("piped")).code == 0);

  const Result ignored = shell(at(step_3, "nohup " + run + "--steps 30 --decay-steps 30", log, "kill -HUP $p"));
  INFO(shell("cat " + log).output);
  CHECK(ignored.code == 0);
  CHECK(contains(shell("cat " + log).output, "\nstep 30/30 | loss "));
}

TEST_CASE("a run that is told to leave saves, ends with 75, and goes on as if nothing had been") {
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string log = work.path("log"), out = work.path("parts");
    const std::string run = work.small_run() + flags;
    // mpirun passes SIGUSR2 on at once. A process without a launcher gets SIGTERM.
    const Result left = shell(
        at(step_3, train_as(mpi, run + endless + "--out " + out, log), log, mpi ? "kill -USR2 $p" : "kill -TERM $p"));
    const std::string text = shell("cat " + log).output;
    INFO(text);
    CHECK(left.code == 75);
    const std::int64_t step = step_in(text, "\npreempted; saved step (\\d+) in [0-9.]+ s\n");
    REQUIRE(step >= 3);
    CHECK(contains(text, fmt::format("\nstep {}/1000000000 | loss ", step)));
    CHECK_FALSE(contains(text, fmt::format("\nstep {}/1000000000 | loss ", step + 1)));
    CHECK_FALSE(contains(text, "FATAL"));

    // One more step, compared with an uninterrupted run.
    const std::string end = fmt::format("--steps {} ", step + 1);
    const std::string whole = work.path("whole");
    CHECK(trireme::testing::run("train_gpt", run + end + "--resume auto --out " + out).code == 0);
    CHECK(trireme::testing::run("train_gpt", run + end + "--out " + whole).code == 0);
    CHECK(trireme::testing::run("checkpoint", fmt::format("diff {} {}", out, whole)).code == 0);
    CHECK(metric(out + "/metrics.jsonl", "loss") == metric(whole + "/metrics.jsonl", "loss"));
  }
}

TEST_CASE("a run that is told to save does so and goes on") {
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string log = work.path("log"), out = work.path("run");
    const std::string run = work.small_run() + flags;
    const std::string wait_for_save = "kill -USR1 $p; " + until(has_line("continuing", log)) + "kill -USR2 $p";
    const Result left = shell(at(step_3, train_as(mpi, run + endless + "--out " + out, log), log, wait_for_save));
    const std::string text = shell("cat " + log).output;
    INFO(text);
    CHECK(left.code == 75);
    const std::int64_t saved = step_in(text, "\nsaved step (\\d+); continuing\n");
    REQUIRE(saved >= 3);
    const int saves = occurrences(text, "continuing");
    CHECK((saves == 1 || (mpi && saves == 2)));  // signals that reach the ranks more than a second apart are two
    const std::int64_t last = step_in(text, "\npreempted; saved step (\\d+) in ");
    REQUIRE(last > saved);
    // An uninterrupted run of the same number of steps.
    CHECK(
        trireme::testing::run("train_gpt", fmt::format("{}--steps {} --out {}", run, last, work.path("whole"))).code ==
        0);
    CHECK(metric(out + "/metrics.jsonl", "loss") == metric(work.path("whole/metrics.jsonl"), "loss"));
  }
}

TEST_CASE("a signal ends a sample early, and what was trained is saved") {
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const Workplace work;
    const std::string log = work.path("log"), out = work.path("run");
    const std::string run = work.small_run() + flags + endless + "--out " + out +
                            " --sample-every 3 --sample-length 1000000000";  // takes hours
    const Result left = shell(at(step_3, train_as(mpi, run, log), log, mpi ? "kill -USR2 $p" : "kill -TERM $p"));
    const std::string text = content_of(log);
    INFO(text);
    CHECK(left.code == 75);
    CHECK(step_in(text, "\npreempted; saved step (\\d+) in ") == 3);
    CHECK(metric(out + "/metrics.jsonl", "loss").size() == 3);
  }
}

TEST_CASE("a signal ends an evaluation early, and what was trained is saved") {
  const Workplace work;
  {  // evaluated for seconds
    std::ofstream text(work.folder / "text.txt", std::ios::app);
    for (int i = 0; i < 1'000'000; ++i) text << static_cast<char>('A' + i % 40);
  }
  for (const bool mpi : {false, true}) {
    CAPTURE(mpi);
    const std::string log = work.path("log"), out = work.path("run");
    const std::string run =
        work.small_run() + flags + endless + "--out " + out + " --eval-every 3 --eval-batches all --val-fraction 0.9";
    // A signal that comes between two evaluations cuts none short.
    std::int64_t step = -1;
    for (int attempt = 0; attempt < 100 && step < 0; ++attempt) {
      std::filesystem::remove_all(out);
      const Result left = shell(at(step_3, train_as(mpi, run, log), log, mpi ? "kill -USR2 $p" : "kill -TERM $p"));
      const std::string text = content_of(log);
      INFO(text);
      CHECK(left.code == 75);
      const std::int64_t last = step_in(text, "\npreempted; saved step (\\d+) in ");
      REQUIRE(last >= 3);
      CHECK(metric(out + "/metrics.jsonl", "loss").size() == static_cast<std::size_t>(last));
      step = step_in(text, "\nthe evaluation after step (\\d+) was cut short: told to leave\n");
      if (step >= 0) CHECK(step == last);
    }
    CHECK(step % 3 == 0);
  }
}

TEST_CASE("with --out none a signal saves nothing, and the run says so") {
  const Workplace work;
  const std::string log = work.path("log");
  const Result left = shell(at(step_3, train(work.small_run() + flags + endless), log,
                               "kill -USR1 $p; " + until(has_line("continuing", log)) + "kill -TERM $p"));
  const std::string text = shell("cat " + log).output;
  INFO(text);
  CHECK(left.code == 75);
  CHECK(contains(text, "a signal asks for a save, but --out is none: nothing was saved; continuing\n"));
  CHECK(contains(text, "; --out is none: nothing was saved\n"));
}

TEST_CASE("Ctrl-Z stops a run each time, and it goes on") {
  const Workplace work;
  const std::string log = work.path("log");
  const std::string stop_and_go_on = "kill -TSTP $p; " + until("grep -qs \"^State:.T\" /proc/$p/status") +
                                     "grep State: /proc/$p/status; made=$(grep -c ^step " + log + "); kill -CONT $p; " +
                                     until("[ $(grep -c ^step " + log + ") -gt $made ]");
  const Result ended = shell("set -m; " + at(step_3, train(work.small_run() + flags + endless), log,
                                             stop_and_go_on + stop_and_go_on + "kill -TERM $p"));
  INFO(ended.output);
  CHECK(ended.code == 75);
  CHECK(occurrences(ended.output, "T (stopped)") == 2);
}

TEST_CASE("an interrupt is called so, and a second one names the step that was saved last") {
  const Workplace work;
  const std::string log = work.path("log"), run = train(work.small_run() + flags + endless + "--out ");
  const Result left = shell("set -m; " + at(step_3, run + work.path("one"), log, "kill -INT $p"));
  const std::string text = shell("cat " + log).output;
  INFO(text);
  CHECK(left.code == 75);
  CHECK(step_in(text, "\ninterrupted; saved step (\\d+) in [0-9.]+ s\n") >= 3);
  CHECK(occurrences(text, "saved step ") == 1);
  const Result ended = shell(
      "set -m; export TRIREME_FAULT=stop@rank=1,step=30; " +
      at(blocked, run + work.path("two") + " --checkpoint-every 2 --allow-fault-injection", log, interrupt_twice(log)));
  CHECK(ended.code == 130);
  const std::string told = shell("cat " + log).output;
  INFO(told);
  const std::int64_t newest =
      step_in(told, "\ninterrupted again: ended at once; the newest checkpoint is that of step (\\d+)\n");
  REQUIRE(newest >= 2);
  CHECK(contains(told, fmt::format("\nsaved step {} in ", newest)));
  CHECK_FALSE(contains(told, fmt::format("\nsaved step {} in ", newest + 2)));
}

TEST_CASE("a second interrupt ends a run at once") {
  const Workplace work;
  const std::string log = work.path("log");
  // A rank that blocks in step 4 keeps the run from ending after the first interrupt. Shells start background jobs with
  // SIGINT ignored unless job control is on.
  const std::string run = train(work.small_run() + flags + endless + "--allow-fault-injection");
  const Result left =
      shell("set -m; export TRIREME_FAULT=stop@rank=1,step=4; " + at(blocked, run, log, interrupt_twice(log)));
  const std::string text = shell("cat " + log).output;
  INFO(text);
  CHECK(left.code == 130);
  CHECK(occurrences(text, "interrupted: ending after the step under way; interrupt again to end at once\n") == 1);
  CHECK(occurrences(text, "interrupted again: ended at once; this run has saved nothing\n") == 1);
  CHECK_FALSE(contains(text, "\nstep 4/"));
}

}  // namespace signals_test
