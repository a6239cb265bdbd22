// --keep-best: whenever a validation loss is the lowest so far, there is a checkpoint of that step, and it stays.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// The steps that a run has checkpoints of, in order.
std::vector<int> steps_in(const std::string& out) {
  std::vector<int> steps;
  for (const auto& entry : fs::directory_iterator(out + "/checkpoints"))
    if (const std::string name = entry.path().filename().string(); name.starts_with("step_"))
      steps.push_back(std::stoi(name.substr(5)));
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string step_folder(const std::string& out, int step) {
  return fmt::format("{}/checkpoints/step_{:08}", out, step);
}

nlohmann::json best_of(const std::string& out) {
  return nlohmann::json::parse(content_of(out + "/checkpoints/best.json"));
}

struct Lowest {
  int step = 0;
  double loss = 0;
};
/// The lowest validation loss that metrics.jsonl has, and its step.
Lowest lowest_in(const std::string& out) {
  std::ifstream file(out + "/metrics.jsonl");
  Lowest lowest;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("val_loss") && (lowest.step == 0 || record["val_loss"] < lowest.loss))
      lowest = {record["step"], record["val_loss"]};
  }
  return lowest;
}

void check_best(const std::string& out) {
  CHECK(best_of(out)["step"] == lowest_in(out).step);
  CHECK(best_of(out)["val_loss"] == lowest_in(out).loss);
}

/// Flags of a learning rate that grows until the model gets worse. A validation loss every two steps.
const std::string gets_worse = "--steps 12 --warmup-steps 12 --lr 3 --eval-every 2 ";

}  // namespace

TEST_CASE("the step with the lowest validation loss is saved when no checkpoint is due, on every mesh") {
  const Workplace work;
  const auto check = [&](const std::string& name, const Result& result) {
    CAPTURE(name);
    const std::string out = work.path(name);
    INFO(result.output);
    REQUIRE(result.code == 0);
    check_best(out);
    const int best = lowest_in(out).step;
    REQUIRE(best < 12);
    CHECK(steps_in(out) == std::vector<int>{best, 12});  // earlier ones were the best only for a time
    CHECK(run("checkpoint", "verify " + step_folder(out, best)).code == 0);
    const std::string saved = fmt::format("\nsaved step {} in {}", best, step_folder(out, best));
    REQUIRE(contains(result.output, saved));
    const std::string line = result.output.substr(result.output.find(saved) + 1);
    CHECK(line.substr(0, line.find('\n')).ends_with(", the best so far"));
    CHECK(contains(result.output,
                   "at each new lowest validation loss (computed every 2 steps); of the latter only the "
                   "best stays\n"));
  };
  const auto flags = [&](const std::string& name) {
    return work.small_run() + gets_worse + "--out " + work.path(name) + " ";
  };
  check("one", run("train_gpt", flags("one")));
  check("mesh", run("train_gpt", flags("mesh") + "--mesh dp=2,tp=2,pp=2 --zero 1"));
  check("context", run("train_gpt", flags("context") + "--mesh dp=2,cp=2 --zero 3"));
  check("processes", run_mpi(2, "train_gpt", flags("processes") + "--mesh dp=2"));
}

TEST_CASE("the best checkpoint stays besides those of --keep, and can be named") {
  const Workplace work;
  const std::string out = work.path("run");
  const Result result = run("train_gpt", work.small_run() + gets_worse + "--checkpoint-every 2 --keep 1 --out " + out);
  INFO(result.output);
  REQUIRE(result.code == 0);
  check_best(out);
  const int best = lowest_in(out).step;
  REQUIRE(best < 12);
  CHECK(steps_in(out) == std::vector<int>{best, 12});
  CHECK(contains(result.output, "; the newest 1 and the best stay\n"));

  const auto generate = [&](const std::string& path) {
    return run("generate", "--prompt A --length 2 --checkpoint " + path).output;
  };
  CHECK(contains(generate(out), "checkpoint: " + step_folder(out, 12) + "\n"));
  CHECK(contains(generate(out + "/best"), "checkpoint: " + step_folder(out, best) + "\n"));
  CHECK(contains(generate(out + "/checkpoints/best"), step_folder(out, best)));
}

TEST_CASE("a checkpoint that was due stays with --keep when a better one comes, and one that was only the best goes") {
  const Workplace work;
  const std::string out = work.path("run");
  // The loss falls: steps 1 to 8 are each the best so far; 3 and 6 are due.
  const Result result = run(
      "train_gpt", work.small_run() + "--steps 8 --lr 1e-2 --eval-every 1 --checkpoint-every 3 --keep 2 --out " + out);
  INFO(result.output);
  REQUIRE(result.code == 0);
  check_best(out);
  REQUIRE(lowest_in(out).step == 8);
  CHECK(steps_in(out) == std::vector<int>{6, 8});
  for (int step = 1; step <= 8; ++step) CHECK(contains(result.output, fmt::format("\nsaved step {} in ", step)));
}

TEST_CASE("a resumed run knows the best checkpoint") {
  const Workplace work;
  SUBCASE("of an earlier start, on another mesh") {
    const std::string out = work.path("run"), parts = work.small_run() +
                                                      "--lr 3 --lr-schedule constant --warmup-steps 7 --eval-every 2 "
                                                      "--resume auto --out " +
                                                      out;
    REQUIRE(run("train_gpt", parts + " --steps 8").code == 0);
    const int best = lowest_in(out).step;
    REQUIRE(best < 8);
    const Result more = run("train_gpt", parts + " --steps 12 --mesh dp=2,tp=2");
    INFO(more.output);
    REQUIRE(more.code == 0);
    check_best(out);
    CHECK(steps_in(out) == std::vector<int>{best, 8, 12});
    CHECK_FALSE(contains(more.output, "the best so far\n"));
  }
  // Now the loss falls until step 6; then a learning rate of 30 makes it worse.
  const std::string out = work.path("falls"), falls = work.small_run() +
                                                      "--eval-every 2 --checkpoint-every 2 --lr-schedule constant "
                                                      "--resume auto --out " +
                                                      out + " ";
  const auto spoil = [&] {
    const Result worse = run("train_gpt", falls + "--lr 30 --steps 10");
    INFO(worse.output);
    REQUIRE(worse.code == 0);
    check_best(out);
    return lowest_in(out).step;
  };
  SUBCASE("whose file was lost") {
    REQUIRE(run("train_gpt", falls).code == 0);
    REQUIRE(best_of(out)["step"] == 6);
    fs::remove(out + "/checkpoints/best.json");
    CHECK(spoil() == 6);
  }
  SUBCASE("up to the step from which it goes on") {
    REQUIRE(run("train_gpt", falls).code == 0);
    REQUIRE(best_of(out)["step"] == 6);
    std::ofstream(step_folder(out, 6) + "/rank_00000.safetensors", std::ios::app) << "damage";
    CHECK(spoil() == 4);  // step 6 is made again, with another learning rate
  }
}

TEST_CASE("without --keep-best a validation loss saves nothing") {
  const Workplace work;
  const std::string out = work.path("off");
  const Result off =
      run("train_gpt", work.small_run() + "--eval-every 2 --checkpoint-every 2 --keep 1 --keep-best off --out " + out);
  CHECK(off.code == 0);
  CHECK(steps_in(out) == std::vector<int>{6});
  CHECK_FALSE(fs::exists(out + "/checkpoints/best.json"));
  CHECK_FALSE(contains(off.output, "lowest"));
  CHECK_FALSE(contains(off.output, "best"));
  check_refused(run("generate", "--prompt A --length 2 --checkpoint " + out + "/best"), 64, {"--keep-best"});
}

TEST_CASE("a best.json that cannot be read is named") {
  const Workplace work;
  const std::string out = work.path("damaged");
  REQUIRE(run("train_gpt", work.small_run() + "--eval-every 2 --out " + out).code == 0);
  std::ofstream(out + "/checkpoints/best.json") << "{";
  check_refused(run("generate", "--prompt A --length 2 --checkpoint " + out + "/best"), 65, {"best.json"});
}

TEST_CASE("a best.json that may not be read, and one that names nothing, have messages with the cause") {
  const Workplace work;
  const std::string out = work.path("run"), best = out + "/checkpoints/best.json";
  REQUIRE(run("train_gpt", work.small_run() + "--out " + out).code == 0);
  const auto refused = [&](int code, const std::string& part) {
    check_refused(run("checkpoint", "inspect " + out + "/best"), code, {best, part});
  };
  std::ofstream(best) << "{\"step\":4,\"val_loss\":1}";
  refused(65, "names the checkpoint " + out + "/checkpoints/step_00000004, which is not there");
  std::ofstream(best) << "{\"step\":4}";
  refused(65, "no number val_loss");
  fs::remove(best);
  fs::create_symlink("best.json", best);
  refused(74, "Too many levels of symbolic links");
}

TEST_CASE("checkpoints that are a file or a loop of links are the cause that is named") {
  const Workplace work;
  const std::string out = work.path("run"), inside = out + "/checkpoints";
  REQUIRE(run("train_gpt", work.small_run() + "--out " + out).code == 0);
  CHECK(run("checkpoint", "inspect " + out + "/best/").code == 0);  // with a slash, too
  fs::rename(inside, work.folder / "aside");
  const auto refused = [&](const std::string& part) {
    for (const std::string& path : {out, out + "/best"})
      check_refused(run("checkpoint", "inspect " + path), 74, {inside, part});
  };
  fs::create_symlink("checkpoints", inside);
  refused("Too many levels of symbolic links");
  fs::remove(inside);
  std::ofstream(inside) << "x";
  refused("is not a folder");
}

TEST_CASE("a full disk that has no room for best.json does not end the run") {
  const Workplace work;
  const std::string out = work.path("full");
  const Result full = run_with("TRIREME_IO_FAULT=kind=enospc,call=write,path=best.json", "train_gpt",
                               work.small_run() + "--eval-every 2 --allow-fault-injection --out " + out);
  INFO(full.output);
  CHECK(full.code == 0);
  CHECK(contains(full.output, "best.json"));
  CHECK(contains(full.output, "No space left on device"));
}
