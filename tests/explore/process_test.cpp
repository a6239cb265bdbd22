#include <doctest/doctest.h>

#include <chrono>

#include "check/explore/process.h"

using namespace trireme::explore;

TEST_CASE("a program's exit code, signal and output come back") {
  const ProcessResult ended = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"}, {}, 1800);
  CHECK(ended.code == 3);
  CHECK(ended.output == "out\nerr\n");
  CHECK(run_process({"sh", "-c", "kill -SEGV $$"}, {}, 1800).code == 128 + 11);
  CHECK(run_process({"sh", "-c", "printf %s \"$TRIREME_EXPLORE_TEST\""}, {"TRIREME_EXPLORE_TEST=7"}, 1800).output ==
        "7");
}

TEST_CASE("a program that hangs is killed, with what it has started") {
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult ended = run_process({"sh", "-c", "echo before; sleep 3600 & sleep 3600"}, {}, 0.3);
  CHECK(ended.code == ProcessResult::timed_out);
  CHECK((ended.output == "before\n" || ended.output.empty()));  // on a busy machine it may not come to its echo
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::minutes(30));
}
