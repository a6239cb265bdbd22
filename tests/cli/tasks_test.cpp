// `train` trains the tasks of examples/tasks as train_gpt trains a GPT: on any mesh, saved on one and resumed on
// another.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>

#include "tests/cli/support.h"

using namespace trireme::testing;

namespace {

std::string train(const std::string& flags) {
  const Result result =
      run("train", "--global-batch 12 --width 16 --heads 2 --lr 1e-2 --log-every 1 --out none " + patient + flags);
  INFO(result.output);
  REQUIRE(result.code == 0);
  return result.output;
}

}  // namespace

TEST_CASE("tasks train on any mesh, and a run saved on one goes on on another") {
  for (const char* task : {"vit", "sort"}) {
    CAPTURE(task);
    const Workplace work;
    const std::string flags = fmt::format("--task {} --steps 6 ", task);
    const std::string output = train(flags + "--out " + work.path("one"));
    CHECK(contains(output, "what guessing costs"));
    CHECK(contains(output, "\nstep 6/6 | validation loss "));
    const auto one = metric(work.path("one/metrics.jsonl"), "loss");
    CHECK(one.size() == 6);
    train(flags + "--mesh dp=2,tp=2 --zero 3 --checkpoint-every 3 --out " + work.path("mesh"));
    train(flags + "--mesh pp=2 --pipeline interleaved:2 --micro-batches 3 --recompute full --resume " +
          work.path("mesh/checkpoints/step_00000003") + " --out " + work.path("resumed"));
    const auto mesh = metric(work.path("mesh/metrics.jsonl"), "loss"),
               resumed = metric(work.path("resumed/metrics.jsonl"), "loss");
    REQUIRE(mesh.size() == 6);
    REQUIRE(resumed.size() == 3);
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::abs(mesh[i] - one[i]) <= 1e-4 * one[i]);
    for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(resumed[i] - one[i + 3]) <= 1e-4 * one[i + 3]);
  }
}

TEST_CASE("parity compares tasks by name") {
  for (const char* task : {"vit", "sort"}) {
    const Result result = run("parity", fmt::format("--task {} --width 16 --heads 2 --mesh dp=2,pp=2 --zero 3 "
                                                    "--global-batch 4 --micro-batch 1",
                                                    task));
    INFO(result.output);
    CHECK(result.code == 0);
    CHECK(contains(result.output, std::string("equal: ") + task + ", dp=2,tp=1,pp=2"));
  }
}

TEST_CASE("a task is refused by name, and its flags are its own") {
  const Result unknown = run("train", "--task tetris"), other = run("train", "--task vit --length 3"),
               cut = run("train", "--task sort --mesh tp=2 --sequence-parallel on"),
               cp = run("train", "--task vit --mesh cp=2"), ep = run("train", "--task vit --mesh dp=2,ep=2"),
               ulysses = run("train", "--task vit --context-parallel ulysses");
  CHECK(unknown.code == 64);
  CHECK(contains(unknown.output, "tetris"));
  CHECK(contains(unknown.output, "gpt, vit"));
  CHECK(other.code == 64);
  CHECK(contains(other.output, "unknown flag --length"));
  CHECK(cut.code == 64);
  CHECK(contains(cut.output, "sequence parallelism cuts sequences over tp=2"));
  CHECK(cp.code == 64);
  CHECK(contains(cp.output, "cp=1"));
  CHECK(ep.code == 64);
  CHECK(contains(ep.output, "this model has none"));
  CHECK(ulysses.code == 64);
  CHECK(contains(ulysses.output, "--context-parallel has no effect"));
}

TEST_CASE("a configuration file names its task") {
  const Workplace work;
  shell(std::string(TRIREME_BIN) + "/train --task sort --length 5 --print-config > " + work.path("sort.json"));
  const Result result = run("train", "--config " + work.path("sort.json") + " --dry-run");
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, "strings of 5 digits"));
}

TEST_CASE("a task resumed as another, or in another dtype, is told so") {
  const Workplace work;
  train("--task vit --steps 2 --out " + work.path("run"));
  const auto resume = [&](const std::string& flags) {
    return run("train", patient + "--global-batch 12 --width 16 --heads 2 --steps 4 --resume auto --out " +
                            work.path("run") + flags);
  };
  const Result dtype = resume(" --task vit --dtype bf16"), other = resume(" --task sort");
  CHECK(dtype.code == 64);
  CHECK(contains(dtype.output, "was saved with --dtype f32, and this run has bf16"));
  CHECK(other.code == 64);
  CHECK(contains(other.output, "'vit', and this program's model is 'sorter'"));
}
