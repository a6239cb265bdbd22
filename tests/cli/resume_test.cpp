// --resume auto as a user meets it: what makes it give a checkpoint up, and what does not; a disk that refuses; a folder
// with files that are not the program's own; a run that has to begin again.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// A run of six steps with checkpoints after 3 and 6, and how to go on with it.
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
  /// Where the next start would go on from; changes nothing.
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

}  // namespace

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
