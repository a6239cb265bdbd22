#include <doctest/doctest.h>

#include <chrono>

#include "train/explore/process.h"

using namespace trireme::explore;

TEST_CASE("a program's exit code, signal and output come back") {
  const Ended ended = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"}, {}, 10);
  CHECK(ended.code == 3);
  CHECK(ended.output == "out\nerr\n");
  CHECK(run_process({"sh", "-c", "kill -SEGV $$"}, {}, 10).code == 128 + 11);
  CHECK(run_process({"sh", "-c", "printf %s \"$TRIREME_EXPLORE_TEST\""}, {"TRIREME_EXPLORE_TEST=7"}, 10).output == "7");
}

TEST_CASE("a program that hangs is killed, with what it has started") {
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = run_process({"sh", "-c", "echo before; sleep 60 & sleep 60"}, {}, 0.3);
  CHECK(ended.code == Ended::timed_out);
  CHECK(ended.output == "before\n");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}
