// The folder of --out: what it refuses, what it leaves.
#include "train/run_folder.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/train/support.h"

using namespace trireme;
using trireme::testing::contains;
using trireme::testing::failure;
namespace fs = std::filesystem;

TEST_CASE("a run leaves its configuration and a line per step") {
  const trireme::testing::Folder folder;
  const fs::path out = folder.path / "deep" / "run1";
  RunFolder run(out, "none");
  CHECK_FALSE(fs::exists(out));  // nothing before open()
  CHECK_FALSE(run.exists());
  run.open("{\"steps\": 2}\n");
  CHECK(run.exists());
  StepRecord record;
  record.step = 1;
  run.log(record);
  record.step = 2;
  run.log(record);
  CHECK(read_file(out / "config.json") == "{\"steps\": 2}\n");
  CHECK(read_file(out / "metrics.jsonl") == to_json_line([] {
                                              StepRecord r;
                                              r.step = 1;
                                              return r;
                                            }()) +
                                                "\n" + to_json_line(record) + "\n");
}

TEST_CASE("without --out nothing is written") {
  RunFolder run("", "none");
  run.open("{}");
  run.log({});
  CHECK_FALSE(run.exists());
}

TEST_CASE("a folder that holds a run is refused, unless that run goes on") {
  const trireme::testing::Folder folder;
  const fs::path out = folder.path / "run1";
  {
    RunFolder first(out, "none");
    first.open("{}");
    first.log({});
  }
  CHECK(failure([&] { RunFolder(out, "none"); }) ==
        fmt::format("64 trireme: [out] {0} already holds a run (config.json); expected a new or empty folder; choose "
                    "another --out, or go on with "
                    "that run: --resume {0}",
                    out.string()));
  CHECK(contains(failure([&] { RunFolder(out, (folder.path / "run2").string()); }), "already holds a run"));
  CHECK(contains(failure([&] { RunFolder(out, (folder.path / "run10").string()); }), "already holds a run"));
  RunFolder again(out, out.string());
  again.open("{\"more\": 1}");
  again.log({});
  const std::string metrics = read_file(out / "metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 2);
  CHECK(failure([&] { RunFolder(out, (out / "checkpoints" / "step_1").string()); }) == "nothing");
}

TEST_CASE("an unusable folder is refused by name") {
  const trireme::testing::Folder folder;
  write_file(folder.path / "file", "x");
  CHECK(contains(failure([&] { RunFolder(folder.path / "file", "none"); }),
                 "64 trireme: [out] " + (folder.path / "file").string() + " is a file"));
  RunFolder below(folder.path / "file" / "run", "none");
  const std::string refusal = failure([&] { below.open("{}"); });
  CHECK(contains(refusal, "74 trireme: [out] "));
  CHECK(contains(refusal, (folder.path / "file" / "run").string()));
  CHECK(contains(refusal, "choose another --out"));
}
