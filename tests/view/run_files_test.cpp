// What is read from the folder of a run.
#include "ops/view/run_files.h"

#include <doctest/doctest.h>

#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::run_view;
using trireme::testing::caught;
using trireme::testing::TempFolder;
using trireme::testing::write_plainly;

TEST_CASE("view: a run's options and metrics") {
  const TempFolder folder;
  write_plainly(folder / "config.json", "{\"mesh\": \"dp=2\", \"steps\": 8, \"profile\": \"trace.json\"}");
  write_plainly(folder / "metrics.jsonl",
                "{\"step\":1,\"loss\":4.25}\n{\"step\":2,\"loss\":null,\"val_loss\":3}\n{\"st");
  const RunFiles run = read_run(folder.path());
  CHECK(run.name == folder.path().filename().string());
  CHECK(run.option("mesh") == "dp=2");
  CHECK(run.option("steps") == "8");
  CHECK(run.option("none") == "");
  REQUIRE(run.metrics.size() == 2);  // the last line is still being written
  CHECK(run.metrics[0].values.at("loss") == 4.25);
  CHECK(run.metrics[1].has_loss);
  CHECK(!run.metrics[1].values.contains("loss"));
  CHECK(run.metrics[1].values.at("val_loss") == 3);
}

TEST_CASE("view: a trace is found beside the folder of its run") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "run");
  write_plainly(folder / "run/config.json", "{\"profile\": \"a trace of view_test.json\"}");
  const RunFiles run = read_run(folder / "run");
  CHECK(!find_trace(folder / "run", run).has_value());
  write_plainly(folder / "a trace of view_test.json", "{}");
  CHECK(find_trace(folder / "run", run).has_value());
}

TEST_CASE("view: folders and files that are no run are refused") {
  const TempFolder folder;
  CHECK(caught([&] { read_run(folder.path()); }).code == ExitCode::usage);
  for (const char* line : {"x\n", "[]\n", "{}\n", "{\"step\":-1}\n", "{\"step\":\"1\"}\n", "{\"step\":1e300}\n"})
    CHECK(caught([&] { parse_metrics(line, "metrics.jsonl"); }).code == ExitCode::data);
  write_plainly(folder / "config.json", "[]");
  CHECK(caught([&] { read_run(folder.path()); }).code == ExitCode::data);
}
