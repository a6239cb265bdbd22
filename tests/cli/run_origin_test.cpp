// run: where a run starts (--resume PATH), starts again and resumes, and folders that hold another run or only a part
// of one.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace run_origin_test {
namespace {

const std::string fast = "--pause 0.01 --grace 0.1 ";

std::string training(const Workplace& work) { return work.small_run() + "--mesh dp=2 --decay-steps 1000 "; }

/// Runs train_gpt under `run`, with --resume `base` unless that is empty, --out `out` and this TRIREME_FAULT. The run
/// is so short that it saves only after its last step, unless the flags ask for more.
Result supervise(const Workplace& work, const std::string& base, const std::string& out, const std::string& flags,
                 const std::string& fault = "", const std::string& run_flags = "") {
  const std::string variable = fault.empty() ? "A=1" : "TRIREME_FAULT=" + fault + " ";
  return run_with(
      variable, "run",
      fmt::format("{} {} -- {}/train_gpt {} {} --out {} {}{}", fast, run_flags, TRIREME_BIN, training(work),
                  base.empty() ? "" : "--resume " + base, out, flags, fault.empty() ? "" : " --allow-fault-injection"));
}

/// An uninterrupted run of this many steps; its folder.
std::string trained(const Workplace& work, const std::string& name, int steps, const std::string& flags = "") {
  const std::string out = work.path(name);
  const Result result =
      trireme::testing::run("train_gpt", fmt::format("{} --steps {} --out {} {}", training(work), steps, out, flags));
  INFO(result.output);
  REQUIRE(result.code == 0);
  return out;
}

std::string configured_resume(const std::string& out) {
  return nlohmann::json::parse(content_of(out + "/config.json"))["resume"];
}

bool same_weights(const std::string& a, const std::string& b) {
  return trireme::testing::run("checkpoint", fmt::format("diff {} {}", a, b)).code == 0;
}

}  // namespace

TEST_CASE("run: killed before its first checkpoint, a run from another's checkpoint begins there again") {
  const Workplace work;
  const std::string base = trained(work, "base", 3), own = work.path("own");
  const Result result = supervise(work, base, own, "--steps 8 --log-every 1", "kill@step=6");
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, fmt::format("run: starting again in 0.0 s from step 3 of {} (restart 1; ", base)));
  CHECK(occurrences(result.output, "\nresuming after step 3 from " + base) == 2);
  const auto noted = nlohmann::json::parse(content_of(own + "/incidents.jsonl"));
  CHECK(noted["resumed_step"] == 3);
  CHECK(metric(own + "/metrics.jsonl", "step") == std::vector<double>{4, 5, 6, 7, 8});
  CHECK(same_weights(own, trained(work, "whole", 8, "--resume " + base)));
}

TEST_CASE("run: a run that has saved nothing begins again when the command is given again, and no other does") {
  const Workplace work;
  const std::string base = trained(work, "base", 3), other = trained(work, "other", 2), own = work.path("own");
  const Result ended = supervise(work, base, own, "--steps 8", "kill@step=6,start=any", "--restarts 1");
  INFO(ended.output);
  CHECK(ended.code == 69);
  CHECK(occurrences(ended.output, "\nresuming after step 3 from ") == 2);
  const auto refused = [&](const Result& result) {
    INFO(result.output);
    CHECK(result.code == 64);
    CHECK(contains(result.output, "already holds a run (config.json); expected a new or empty folder"));
  };
  refused(supervise(work, other, own, "--steps 8"));
  const std::string alone = training(work) + "--steps 8 --out " + own;
  refused(trireme::testing::run("train_gpt", alone));
  refused(trireme::testing::run("train_gpt", alone + " --resume " + other));
  refused(trireme::testing::run("train_gpt", alone + " --resume none"));

  const Result again = supervise(work, base, own, "--steps 8");
  INFO(again.output);
  CHECK(again.code == 0);
  CHECK(contains(again.output,
                 fmt::format("run: {} holds nothing saved of this run yet: it begins from {} again\n", own, base)));
  CHECK(same_weights(own, trained(work, "whole", 8, "--resume " + base)));
}

TEST_CASE("train_gpt alone, killed before its first checkpoint: the same command begins again") {
  const Workplace work;
  const std::string base = trained(work, "base", 3), own = work.path("own");
  const std::string command = fmt::format("{} --steps 8 --resume {} --out {} ", training(work), base, own);
  CHECK(run_with("TRIREME_FAULT=kill@step=6", "train_gpt", command + "--allow-fault-injection").code == 137);
  const Result again = trireme::testing::run("train_gpt", command);
  INFO(again.output);
  CHECK(again.code == 0);
  // Now the run has saved a checkpoint, which would be lost.
  const Result third = trireme::testing::run("train_gpt", command);
  CHECK(third.code == 64);
  CHECK(contains(third.output, "or go on with that run: --resume " + own));
}

TEST_CASE("run: a run that began from another's checkpoint goes on with its own when the command is given again") {
  const Workplace work;
  const std::string base = work.path("base"), out = work.path("own"), log = work.path("log");
  const std::string flags = work.small_run() + "--mesh dp=2 --decay-steps 1000 ";
  CHECK(trireme::testing::run("train_gpt", flags + "--steps 3 --out " + base).code == 0);
  const std::string command = fmt::format("-- {}/train_gpt {} --resume {} --out {} ", TRIREME_BIN, flags, base, out);
  const Result left = shell(started(fmt::format("{}/run {} {}", TRIREME_BIN, command, endless), log) +
                            until(has_line("^step 5/", log)) + "kill -TERM $p; wait $p");
  CHECK(left.code == 75);
  const auto made = static_cast<std::int64_t>(metric(out + "/metrics.jsonl", "step").back());
  // The first start wrote --resume PATH to config.json; this one writes auto.
  for (const std::int64_t more : {1, 2}) {
    const Result done = trireme::testing::run("run", command + fmt::format("--steps {}", made + more));
    INFO(done.output);
    CHECK(done.code == 0);
    CHECK(contains(done.output, fmt::format("run: {} holds step {} of this run: it goes on from there, and not from {} "
                                            "again\n",
                                            out, made + more - 1, base)));
    CHECK(contains(done.output, fmt::format("\nresuming after step {} from ", made + more - 1)));
  }
}

TEST_CASE("run: a folder that holds another run is refused, however that run was last started") {
  const Workplace work;
  const std::string base = trained(work, "base", 3), other = trained(work, "other", 2);
  const std::vector<std::string> foreign = {
      trained(work, "new", 3, "--resume none"),
      trained(work, "new_auto", 3, "--resume auto"),
      trained(work, "of_other", 4, "--resume " + other),
  };
  CHECK(supervise(work, "", foreign.back(), "--steps 5").code == 0);  // writes auto to config.json
  CHECK(configured_resume(foreign.back()) == "auto");
  for (const std::string& out : foreign) {
    CAPTURE(out);
    const std::string before = content_of(out + "/metrics.jsonl");
    // A job that is killed before it looks at the folder does not count as begun.
    for (const std::string launcher : {"", "early "}) {
      std::ofstream(work.path("job"))
          << "#!/bin/bash\n"
             "if [ \"$1\" = early ]; then shift; [ $TRIREME_RESTARTS = 0 ] && kill -9 $$; fi\n"
             "exec \"$@\"\n";
      fs::permissions(work.path("job"), fs::perms::owner_all);
      const Result refused =
          trireme::testing::run("run", fmt::format("{} -- {} {}{}/train_gpt {} --steps 9 --resume {} --out {}", fast,
                                                   work.path("job"), launcher, TRIREME_BIN, training(work), base, out));
      INFO(refused.output);
      CHECK(refused.code == 64);
      CHECK(contains(refused.output, "already holds a run"));
      CHECK_FALSE(contains(refused.output, "it goes on from there"));
    }
    CHECK(content_of(out + "/metrics.jsonl") == before);
  }
}

TEST_CASE("run: a damaged config.json does not keep a run from resuming") {
  const Workplace work;
  const std::string base = trained(work, "base", 3), plain = trained(work, "plain", 3);
  const std::string own = trained(work, "own", 5, "--resume " + base);
  int steps = 5;
  for (const std::string damaged : {"", "{\"resume\": \"no", "[1]", "{\"resume\": 7}"}) {
    CAPTURE(damaged);
    ++steps;
    std::ofstream(plain + "/config.json") << damaged;
    std::ofstream(own + "/config.json") << damaged;
    const Result result = supervise(work, "", plain, fmt::format("--steps {}", steps));
    INFO(result.output);
    CHECK(result.code == 0);
    CHECK(contains(result.output, "\nresuming after step "));
    const Result from = supervise(work, base, own, fmt::format("--steps {}", steps));
    INFO(from.output);
    CHECK(from.code == 0);
    CHECK(contains(from.output, fmt::format("{} holds step {} of this run: it goes on from there", own, steps - 1)));
  }
}

}  // namespace run_origin_test
