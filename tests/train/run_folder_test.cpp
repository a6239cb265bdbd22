// The folder of --out: what is refused, and what a run leaves in it.
#include "train/runs/run_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/io_faults.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/text.h"
#include "train/runs/metrics_sink.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// What f writes to standard error.
template <class F>
std::string captured_stderr(const F& f) {
  const TempFolder folder;
  const int before = ::dup(STDERR_FILENO), file = ::open((folder / "text").c_str(), O_RDWR | O_CREAT, 0600);
  ::dup2(file, STDERR_FILENO);
  f();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(file);
  return content_of(folder / "text");
}

}  // namespace

TEST_CASE("a run leaves its configuration and a line per step") {
  const TempFolder folder;
  const fs::path out = folder / "deep" / "run1";
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

TEST_CASE("the sink of metrics.jsonl waits for a step's validation loss, and goes back with the run") {
  const TempFolder folder;
  const fs::path out = folder / "run1";
  RunFolder run(out, "none");
  run.open("{}");
  MetricsSink sink(run);
  const auto logged = [](std::int64_t step, bool evaluated) {
    StepLogged event;
    event.record.step = step;
    event.evaluated = evaluated;
    return event;
  };
  const auto steps = [&] {
    std::istringstream lines(read_file(out / "metrics.jsonl"));
    std::string all;
    for (std::string line; std::getline(lines, line);)
      all += line.substr(8, line.find(',') - 8) + (contains(line, "\"val_loss\":2.5") ? "v " : " ");
    return all;
  };
  sink.receive(Validated{.step = 0, .loss = 9});  // before the first step: no line
  sink.receive(logged(1, false));
  sink.receive(logged(2, true));
  CHECK(steps() == "1 ");
  sink.receive(Validated{.step = 2, .loss = 2.5});
  sink.receive(logged(3, false));
  CHECK(steps() == "1 2v 3 ");
  sink.receive(RolledBack{.step = 2});
  CHECK(steps() == "1 2v ");
  sink.receive(logged(3, true));
  sink.receive(Validated{.step = 3, .loss = std::nan("")});  // ends the run
  CHECK(steps() == "1 2v ");
}

TEST_CASE("without --out nothing is written") {
  RunFolder run("", "none");
  run.open("{}");
  run.log({});
  CHECK_FALSE(run.exists());
}

TEST_CASE("metrics.jsonl that is removed or replaced during a run is said, and a new file takes the lines") {
  const TempFolder folder;
  const fs::path out = folder / "run1", metrics = out / "metrics.jsonl";
  RunFolder run(out, "none");
  run.open("{}");
  StepRecord record;
  const auto log = [&](std::int64_t step) {
    record.step = step;
    return captured_stderr([&] { run.log(record); });
  };
  CHECK(log(1).empty());
  fs::remove(metrics);
  CHECK(contains(log(2), "metrics.jsonl was removed or replaced: its lines are lost"));
  CHECK(log(3).empty());  // said once
  CHECK(first_steps(read_file(metrics), 9) == read_file(metrics));
  CHECK(occurrences(read_file(metrics), "\"step\":") == 2);
  write_file(metrics, "{\"step\":9}\n");  // as an editor replaces it
  CHECK(contains(log(4), "was removed or replaced"));
  CHECK(read_file(metrics).starts_with("{\"step\":9}\n{\"step\":4,"));
  fs::rename(out, folder / "moved");
  CHECK(contains(log(5), "training goes on without that file"));
  CHECK(log(6).empty());
  fs::rename(folder / "moved", out);
  CHECK(log(7).empty());
  CHECK(contains(read_file(metrics), "\"step\":6,"));
}

TEST_CASE("a folder that holds a run is refused, unless that run goes on") {
  const TempFolder folder;
  const fs::path out = folder / "run1";
  {
    RunFolder first(out, "none");
    first.open("{}");
    first.log({});
  }
  CHECK(failure([&] { RunFolder(out, "none"); }) ==
        fmt::format("64 trireme: [out] {0} already holds a run (config.json); expected a new or empty folder; choose "
                    "another --out, or remove the folder: that run ended before it saved anything",
                    out.string()));
  CHECK(contains(failure([&] { RunFolder(out, (folder / "run2").string()); }), "already holds a run"));
  CHECK(contains(failure([&] { RunFolder(out, (folder / "run10").string()); }), "already holds a run"));
  const auto save = [&](std::int64_t step) {
    const fs::path saved = out / "checkpoints" / checkpoint::folder_name(step);
    checkpoint::Manifest manifest;
    manifest.step = step;
    make_directories(saved);
    write_file(saved / checkpoint::manifest_name, checkpoint::to_text(manifest));
  };
  CHECK(contains(failure([&] { RunFolder(out, out.string()); }), "holds no saved run"));
  save(1);
  CHECK(contains(failure([&] { RunFolder(out, "none"); }), "or go on with that run: --resume " + out.string()));
  StepRecord record;
  {
    RunFolder killed(out, "auto");  // made two more steps than it saved
    killed.open("{}", 1);
    for (record.step = 1; record.step <= 3; ++record.step) killed.log(record);
  }
  RunFolder again(out, out.string());
  again.open("{\"more\": 1}", 1);
  record.step = 2;
  again.log(record);
  const std::string metrics = read_file(out / "metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 3);  // of steps 0, 1 and 2
  CHECK(failure([&] { RunFolder(out, (out / "checkpoints" / "step_00000001").string()); }) == "nothing");
  save(2);
  CHECK(contains(failure([&] { RunFolder(out, (out / "checkpoints" / "step_00000001").string()); }),
                 "holds a newer checkpoint than"));
  CHECK(failure([&] { RunFolder(out, out.string()); }) == "nothing");
}

TEST_CASE("a run from another's checkpoint that ended with nothing saved begins again in its folder") {
  const TempFolder folder;
  const fs::path out = folder / "run1";
  const std::string other = (folder / "other").string();
  StepRecord record;
  {
    RunFolder killed(out, other);
    killed.open("{\"resume\": \"" + other + "\"}", 3);
    for (record.step = 4; record.step <= 5; ++record.step) killed.log(record);
  }
  make_directories(out / "checkpoints" / checkpoint::temporary_name(5, checkpoint::make_nonce()));  // never finished
  for (const std::string refused : {"none", "third"})
    CHECK(contains(failure([&] { RunFolder(out, refused); }), "already holds a run (config.json)"));
  {
    RunFolder again(out, other);
    CHECK(contains(again.open("{\"resume\": \"" + other + "\"}", 3), "its metrics are kept in "));
  }
  CHECK(read_file(out / "metrics.jsonl").empty());                     // steps 4 and 5 are made again
  make_directories(out / "checkpoints" / checkpoint::folder_name(6));  // a checkpoint, though damaged
  CHECK(contains(failure([&] { RunFolder(out, other); }), "or go on with that run: --resume " + out.string()));
}

TEST_CASE("of two runs that begin in one folder at once, one is refused") {
  const TempFolder folder;
  const fs::path out = folder / "run1";
  {
    RunFolder first(out, "none"), second(out, "none");  // both find it absent
    first.open("{}");
    const std::string refusal = failure([&] { second.open("{}"); });
    CHECK(contains(refusal, fmt::format("73 trireme: [out] another run is writing to {} (host ", out.string())));
    CHECK(contains(refusal, fmt::format(", process {}, since 20", ::getpid())));
    CHECK(contains(refusal, " UTC); wait for it to end, or choose another --out"));
    // The first run has not ended, whatever it has written by now.
    CHECK(contains(failure([&] { RunFolder(out, "none"); }), "73 trireme: [out] another run is writing"));
    RunFolder third(out, "auto");
    CHECK(contains(failure([&] { third.lock(); }), "73 trireme: [out] another run is writing"));
  }
  RunFolder third(folder / "run2", "none"), fourth(folder / "run2", "none");
  {
    RunFolder whole(folder / "run2", "none");
    whole.open("{}");  // began and ended between the others' first look and their open()
  }
  CHECK(contains(failure([&] { third.open("{}"); }), "already holds a run"));
}

TEST_CASE("a run that moves to another folder gives up the lock of the first, and has that of the second") {
  const TempFolder folder;
  const fs::path first = folder / "first", second = folder / "second";
  fs::create_directories(first);
  fs::create_directories(second);
  RunFolder moved(first, "none");
  moved.lock();
  moved.move_to(second);
  moved.open("{}");
  CHECK_NOTHROW(RunFolder(first, "none").open("{}"));
  RunFolder third(second, "auto");
  CHECK(contains(failure([&] { third.lock(); }), "73 trireme: [out] another run is writing"));
}

TEST_CASE("a folder with something else in it is refused") {
  const TempFolder folder;
  write_file(folder / "notes.txt", "x");
  CHECK(contains(failure([&] { RunFolder(folder.path(), "none"); }), "is not empty: it holds notes.txt"));
}

TEST_CASE("what a killed run had not finished writing is not in the way, and is removed") {
  const TempFolder folder;
  for (const char* name : {"config.json.tmp.12.0", "metrics.jsonl.tmp.12.1"}) write_file(folder / name, "{");
  RunFolder run(folder.path(), "auto");
  run.open("{}");
  CHECK(list_folder(folder.path()) == std::vector<std::string>{".lock", "config.json", "metrics.jsonl"});
}

TEST_CASE("a run does not go on with a pipe in the place of its metrics, and does not wait for a reader") {
  const TempFolder folder;
  const fs::path metrics = folder / "metrics.jsonl";
  write_file(folder / "config.json", "{}");
  REQUIRE(::mkfifo(metrics.c_str(), 0600) == 0);
  RunFolder run(folder.path(), "auto");
  CHECK(failure([&] { run.open("{}"); }) ==
        fmt::format("65 trireme: [out] {} is not a regular file but a pipe; expected a regular file; "
                    "choose another --out",
                    metrics.string()));
  CHECK(fs::is_fifo(metrics));
}

TEST_CASE("an unusable folder is refused by name") {
  const TempFolder folder;
  write_file(folder / "file", "x");
  CHECK(contains(failure([&] { RunFolder(folder / "file", "none"); }),
                 "64 trireme: [out] " + (folder / "file").string() + " is a file"));
  const std::string refusal = failure([&] { RunFolder(folder / "file" / "run", "none"); });  // before anything runs
  CHECK(contains(refusal, "74 trireme: [out] "));
  CHECK(contains(refusal, (folder / "file" / "run").string()));
  CHECK(contains(refusal, "choose another --out"));
}

TEST_CASE("a lock that cannot be opened is refused with one remedy") {
  const TempFolder folder;
  make_directories(folder / ".lock");
  CHECK(failure([&] { RunFolder(folder.path(), "none").open("{}"); }) ==
        fmt::format("74 trireme: [out] cannot open {}: Is a directory; choose another --out",
                    (folder / ".lock").string()));
}

// A fault cannot be disarmed, so this runs in its own process.
TEST_CASE("lines that cannot be written wait for room") {
  const TempFolder folder;
  const fs::path out = folder / "run";
  const pid_t child = ::fork();
  if (child == 0) {
    RunFolder run(out, "none");
    run.open("{}\n");
    arm_io_faults(parse_io_fault("kind=enospc,call=write,path=metrics.jsonl,op=2-3"));
    StepRecord record;
    for (record.step = 1; record.step <= 5; ++record.step) run.log(record);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  const std::string text = read_file(out / "metrics.jsonl");
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
  for (int step = 1; step <= 5; ++step) CHECK(contains(text, fmt::format("\"step\":{}", step)));
}
