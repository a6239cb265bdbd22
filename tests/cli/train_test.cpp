// Successful runs: what they print and write, on threads and under a launcher, resumed and repeated.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/cores.h"
#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// Runs the small model, which must succeed; returns the output.
std::string train(const Workplace& work, const std::string& flags) {
  const Result result = run("train_gpt", work.small_run() + flags);
  INFO(result.output);
  REQUIRE(result.code == 0);
  return result.output;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= relative * std::abs(b[i]));
}

}  // namespace

TEST_CASE("a run on one rank: what it prints and leaves") {
  const Workplace work;
  const std::string output = train(work, "--out " + work.path("run") + " --sample-every 6 --sample-length 5");
  INFO(output);
  CHECK(contains(output, "vocabulary       40 (padded to "));
  CHECK(contains(output, "micro-batch 2 x dp 1 x accumulation 4 = global batch 8 sequences, 128 tokens per step\n"));
  CHECK(contains(output, "a random guess scores 3.6889 (ln 40)"));
  for (int step = 1; step <= 6; ++step) CHECK(occurrences(output, fmt::format("\nstep {}/6 | loss ", step)) == 1);
  CHECK(contains(output, "\nstep 6/6 | validation loss "));
  CHECK(contains(output, "--- sample at step 6 ---"));
  CHECK(contains(output, "where the time went"));
  CHECK_FALSE(contains(output, "\x1b"));

  const auto loss = metric(work.path("run/metrics.jsonl"), "loss");
  CHECK(loss.size() == 6);
  CHECK(std::abs(loss.front() - 3.6889) < 0.2);
  CHECK(metric(work.path("run/metrics.jsonl"), "tokens") == std::vector<double>{128, 256, 384, 512, 640, 768});
  CHECK(metric(work.path("run/metrics.jsonl"), "val_loss").size() == 1);
  CHECK(nlohmann::json::parse(std::ifstream(work.path("run/config.json")))["micro-batch"] == 2);
}

TEST_CASE("any mesh writes the losses of one rank, and writes them again bit for bit") {
  const Workplace work;
  train(work, "--out " + work.path("one"));
  const auto one = metric(work.path("one/metrics.jsonl"), "loss");
  int number = 0;
  for (const char* mesh :
       {"--mesh dp=2", "--mesh tp=2", "--mesh pp=2", "--mesh pp=2 --pipeline gpipe",
        "--mesh pp=2 --pipeline zero-bubble", "--mesh dp=2 --pipeline interleaved:2", "--mesh dp=2,tp=2,pp=2"}) {
    const std::string first = work.path(fmt::format("a{}", number)), second = work.path(fmt::format("b{}", number));
    ++number;
    INFO(mesh);
    const std::string output = train(work, fmt::format("{} --out {}", mesh, first));
    CHECK(occurrences(output, "\nstep 6/6 | loss ") == 1);  // one rank prints, also when the loss is on another stage
    train(work, fmt::format("{} --out {}", mesh, second));
    check_close(metric(first + "/metrics.jsonl", "loss"), one, 1e-4);
    CHECK(results(first + "/metrics.jsonl") == results(second + "/metrics.jsonl"));
  }
}

TEST_CASE("weights that stay packed over the micro-batches of a step change no bit") {
  const Workplace work;
  int number = 0;
  for (const char* flags :
       {"", "--dtype bf16 --recompute full", "--mesh dp=2,tp=2,pp=2 --zero 2"}) {  // 4, 4 and 2 micro-batches
    const std::string off = work.path(fmt::format("off{}", number)), on = work.path(fmt::format("on{}", number));
    ++number;
    INFO(flags);
    train(work, fmt::format("{} --out {}", flags, off));
    train(work, fmt::format("{} --keep-packed on --out {}", flags, on));
    CHECK(results(on + "/metrics.jsonl") == results(off + "/metrics.jsonl"));
  }
}

TEST_CASE("threads have cores of their own where there are as many, and say so") {
  const Workplace work;
  const std::string own = "per rank on cores of their own";
  const std::size_t cores = trireme::usable_cores().size();
  CHECK(contains(train(work, "--mesh dp=2"), own) == (cores >= 2));
  CHECK_FALSE(contains(train(work, "--mesh dp=2 --pin off"), own));
  CHECK_FALSE(contains(train(work, fmt::format("--mesh dp=2 --threads {}", cores)), own));
  // Without binding by the launcher, processes divide all cores among them, or none is pinned.
  for (const int ranks : {2, 4}) {
    const Result mpi = run_mpi(ranks, "train_gpt", work.small_run() + "--mesh dp=auto");
    INFO(mpi.output);
    CHECK(mpi.code == 0);
    CHECK(contains(mpi.output, own) == (cores >= static_cast<std::size_t>(ranks)));
  }
}

TEST_CASE("processes under a launcher train as threads do") {
  const Workplace work;
  train(work, "--mesh dp=2,tp=2,pp=2 --out " + work.path("threads"));
  const Result mpi = run_mpi(8, "train_gpt", work.small_run() + "--mesh dp=auto,tp=2,pp=2 --out " + work.path("mpi"));
  INFO(mpi.output);
  CHECK(mpi.code == 0);
  CHECK(contains(mpi.output, "ranks are MPI processes"));
  CHECK(occurrences(mpi.output, "step 6/6 | loss ") == 1);
  CHECK_FALSE(contains(mpi.output, "\x1b"));
  check_close(metric(work.path("mpi/metrics.jsonl"), "loss"), metric(work.path("threads/metrics.jsonl"), "loss"), 1e-6);
}

TEST_CASE("a fast reduction: the exact one's numbers to rounding, the same bits again, equal copies") {
  const Workplace work;
  const std::string small = work.small_run() + "--mesh dp=4 --checkpoint-every 3 --check-replicas 1 ";
  const auto train_fast = [&](const std::string& flags) {
    const Result mpi = run_mpi(4, "train_gpt", small + "--reduction fast " + flags);
    INFO(mpi.output);
    CHECK(mpi.code == 0);
    CHECK(contains(mpi.output, "\nreduction        fast\n"));
  };
  train_fast("--verify --out " + work.path("fast"));
  train_fast("--out " + work.path("again"));
  train(work, "--mesh dp=4 --out " + work.path("exact"));
  const std::string file = "/metrics.jsonl", fast = work.path("fast") + file, exact = work.path("exact") + file;
  CHECK(results(fast) == results(work.path("again") + file));
  CHECK(results(fast) != results(exact));  // MPI adds in another order
  check_close(metric(fast, "loss"), metric(exact, "loss"), 1e-5);

  // On resume the flag may change, as the mesh may.
  const std::string checkpoint = work.path("fast/checkpoints/step_00000003");
  train_fast("--out " + work.path("resumed") + " --resume " + checkpoint);
  const auto resumed = metric(work.path("resumed") + file, "loss"), whole = metric(fast, "loss");
  CHECK(resumed == std::vector<double>(whole.end() - static_cast<std::ptrdiff_t>(resumed.size()), whole.end()));
  train(work, "--mesh dp=4 --out " + work.path("changed") + " --resume " + checkpoint);
  check_close(metric(work.path("changed") + file, "loss"), resumed, 1e-5);
}

TEST_CASE("ranks with different flags are refused before the first step") {
  const Workplace work;
  const std::string other = fmt::format(": -n 1 {}/train_gpt {} --mesh dp=2 --lr 0.5", TRIREME_BIN, work.small_run());
  check_ranks_refused([&] { return run_mpi(1, "train_gpt", work.small_run() + "--mesh dp=2 " + other); }, 64,
                      {"--lr differs between ranks: 0.001 on rank 0; 0.5 on rank 1"});
}

TEST_CASE("stopping and resuming changes nothing") {
  const Workplace work;
  for (const std::string mesh : {"--mesh dp=1 ", "--mesh dp=2,tp=2,pp=2 "}) {
    const std::string name = mesh == "--mesh dp=1 " ? "one" : "many";
    const std::string whole = work.path(name + "_whole"), parts = work.path(name + "_parts");
    train(work, fmt::format("{} --dropout 0.1 --out {}", mesh, whole));
    train(work, fmt::format("{} --dropout 0.1 --steps 3 --decay-steps 6 --out {}", mesh, parts));
    const std::string output = train(work, fmt::format("{0} --dropout 0.1 --out {1} --resume {1}", mesh, parts));
    CHECK(contains(output, "\nstep 4/6 | loss "));
    CHECK_FALSE(contains(output, "\nstep 3/6 | loss "));
    CHECK(metric(parts + "/metrics.jsonl", "loss") == metric(whole + "/metrics.jsonl", "loss"));
    CHECK(metric(parts + "/metrics.jsonl", "val_loss").back() == metric(whole + "/metrics.jsonl", "val_loss").back());
  }
  // A run saved on one mesh is resumed on another.
  train(work, fmt::format("--dropout 0.1 --mesh tp=2 --steps 7 --decay-steps 6 --resume {} --out {}",
                          work.path("many_whole"), work.path("moved")));
  train(work, fmt::format("--dropout 0.1 --steps 7 --decay-steps 6 --resume {} --out {}", work.path("one_whole"),
                          work.path("stayed")));
  check_close(metric(work.path("moved/metrics.jsonl"), "loss"), metric(work.path("stayed/metrics.jsonl"), "loss"),
              1e-4);
}

TEST_CASE("a run that has made its steps says so, as often as it is asked, and leaves everything as it is") {
  const Workplace work;
  for (const bool mpi : {false, true}) {
    const std::string out = work.path(mpi ? "processes" : "threads"), saved = out + "/checkpoints/step_00000006";
    const std::string flags = work.small_run() + "--mesh dp=2 --checkpoint-every 3 --resume auto --out " + out;
    const auto again = [&](const std::string& more) {
      return mpi ? run_mpi(2, "train_gpt", flags + more) : run("train_gpt", flags + more);
    };
    REQUIRE(again("").code == 0);
    const std::vector<std::string> made = results(out + "/metrics.jsonl");
    for (int time = 0; time < 4; ++time) {  // a checkpoint that two starts resumed in vain would be stepped over
      const Result result = again("");
      INFO(result.output);
      CHECK(result.code == 0);
      CHECK(occurrences(result.output, "warning: nothing to do: " + saved +
                                           " has made 6 steps, and --steps is 6; raise --steps to go on\n") == 1);
      CHECK_FALSE(contains(result.output, "step 6/6"));
      CHECK_FALSE(contains(result.output, "stepped over"));
    }
    CHECK(contains(again(" --steps 4").output, "has made 6 steps, and --steps is 4; raise"));
    CHECK(contains(again(" --dry-run").output, "nothing to do: "));
    CHECK(results(out + "/metrics.jsonl") == made);
    CHECK(contains(again(" --steps 7").output, "\nstep 7/7 | loss "));
  }
}

TEST_CASE("the validation loss is of the same sequences on every mesh, with every micro-batch, and when resumed") {
  const Workplace work;  // --eval-batches 2: 24 of the 38 windows of the validation part
  const std::string flags = "--data " + work.path("text.txt") +
                            " --layers 2 --heads 2 --width 16 --context 16 --global-batch 8 --log-every 1 "
                            "--eval-every 3 --eval-batches 2 --warmup-steps 2 --decay-steps 6 --threads 1 " +
                            patient;
  std::vector<std::vector<double>> losses;
  int number = 0;
  for (const char* more : {"--mesh dp=1", "--mesh dp=2", "--mesh dp=4", "--micro-batch 2", "--micro-batch 4",
                           "--mesh dp=2,pp=2 --micro-batch 1 --zero 1"}) {
    const std::string out = work.path(fmt::format("run{}", number++));
    const Result result = run("train_gpt", flags + fmt::format("--steps 6 {} --out {}", more, out));
    INFO(result.output);
    REQUIRE(result.code == 0);
    losses.push_back(metric(out + "/metrics.jsonl", "val_loss"));
    check_close(losses.back(), losses.front(), 1e-4);
  }
  // A resumed run begins with the validation loss of the step that it resumes from.
  const auto first_validation = [](const std::string& output) {
    const std::string label = " | validation loss ";
    return std::stod(output.substr(output.find(label) + label.size()));
  };
  REQUIRE(run("train_gpt", flags + "--steps 3 --out " + work.path("first")).code == 0);
  for (const char* more : {"--micro-batch 2", "--mesh dp=2 --micro-batch 1", "--mesh tp=2"}) {
    const Result resumed = run("train_gpt", flags + fmt::format("--steps 4 --resume {} {}", work.path("first"), more));
    INFO(resumed.output);
    REQUIRE(resumed.code == 0);
    CHECK(first_validation(resumed.output) == doctest::Approx(losses.front().front()).epsilon(1e-4));
  }
}

TEST_CASE("evaluation and samples leave training as it is") {
  const Workplace work;
  train(work, "--dropout 0.1 --out " + work.path("plain"));
  train(work, "--dropout 0.1 --eval-every 2 --eval-batches all --sample-every 2 --sample-length 4 --out " +
                  work.path("watched"));
  CHECK(metric(work.path("plain/metrics.jsonl"), "loss") == metric(work.path("watched/metrics.jsonl"), "loss"));
  CHECK(metric(work.path("watched/metrics.jsonl"), "val_loss").size() == 3);
}

TEST_CASE("a dry run says what would be trained and writes nothing") {
  const Workplace work;
  const std::string output = train(work, "--mesh dp=2,tp=2,pp=2 --dry-run --out " + work.path("run"));
  INFO(output);
  CHECK(contains(output, "dp=2,tp=2,pp=2 = 8 ranks, sequence parallelism on\n"));
  CHECK(contains(output, "groups           tp [0 1] [2 3] [4 5] [6 7]\n"));
  CHECK(contains(output, "1f1b, 2 stages of 1,1 layers, 2 micro-batches: bubble 33.3% of a step\n"));
  CHECK(contains(output, "memory per rank  "));
  CHECK(contains(output, "rank 1 |.  F0 B0 -- F1 B1 --\n"));
  CHECK(contains(output, "activations alive at most, per rank: 2 1\n"));
  CHECK(contains(output, "messages sent, per rank:             2 2 (in all 4)\n"));
  CHECK_FALSE(contains(output, "step 1/"));
  CHECK_FALSE(fs::exists(work.folder / "run"));
}

TEST_CASE("a model that cannot fit is refused from arithmetic, before it is made") {
  const Workplace work;
  for (const char* flags :
       {"--layers 4096 --width 100000 --dry-run", "--width 1000000 --heads 2 --mesh dp=4 --zero 3"}) {
    const Result refused = run("train_gpt", work.small_run() + flags);
    INFO(refused.output);
    CHECK(refused.code == 64);
    CHECK(contains(refused.output, "FATAL[64] [memory] "));
    CHECK(contains(refused.output, "weights, gradients and optimizer state"));
  }
}

TEST_CASE("offloaded optimizer state: said in the table, and the same losses") {
  const Workplace work;
  const std::string with = train(work, "--mesh dp=2 --zero 1 --dtype bf16 --offload optimizer --out " + work.path("a"));
  INFO(with);
  CHECK(contains(with, "optimizer offloaded to host memory"));
  train(work, "--mesh dp=2 --zero 1 --dtype bf16 --out " + work.path("b"));
  CHECK(metric(work.path("a/metrics.jsonl"), "loss") == metric(work.path("b/metrics.jsonl"), "loss"));
}

TEST_CASE("schedule prints a timeline with its figures, and draws it") {
  const Workplace work;
  const Result result =
      run("schedule", "--pipeline interleaved:2 --pp 2 --micro-batches 2 --svg " + work.path("timeline.svg"));
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, "interleaved:2: 4 stages on 2 ranks, 2 micro-batches; bubble 25.0% of ideal time"));
  CHECK(contains(result.output, "rank 1 |.   F0a F1a F0b B0b --- F1b B1b --- B0a --- B1a ---\n"));
  CHECK(contains(result.output, "activations alive at most, per rank: 4 3\n"));
  std::stringstream svg;
  svg << std::ifstream(work.path("timeline.svg")).rdbuf();
  CHECK(contains(svg.str(), "backward of micro-batch 1 on stage 2"));
  CHECK(contains(run("schedule", "--pipeline zero-bubble --costs 2:3:2").output, "bubble 16.1% of ideal time"));
}

TEST_CASE("what --print-config prints, --config takes") {
  const Workplace work;
  const Result printed = run("train_gpt", work.small_run() + "--mesh dp=2 --lr 0.0003 --print-config");
  REQUIRE(printed.code == 0);
  std::ofstream(work.folder / "c.json") << printed.output;
  const Result again = run("train_gpt", "--print-config --config " + work.path("c.json"));
  CHECK(again.code == 0);
  CHECK(again.output == printed.output);
  const Result changed = run("train_gpt", "--print-config --lr 0.5 --config " + work.path("c.json"));
  CHECK(nlohmann::json::parse(changed.output)["lr"] == 0.5);
  CHECK(nlohmann::json::parse(changed.output)["steps"] == 6);
}

TEST_CASE("output that cannot be written is a failure") {
  const Result full = run("train_gpt", "--help 2>&1 >/dev/full");
  INFO(full.output);
  CHECK(full.code == 74);
  CHECK(contains(full.output, "FATAL[74] [stdout] the output could not be written: No space left on device"));
}

TEST_CASE("every program explains itself") {
  for (const char* program : {"train_gpt", "generate", "parity", "prepare_data", "schedule", "pictures"}) {
    const Result help = run(program, "--help");
    CHECK_MESSAGE(help.code == 0, program);
    CHECK_MESSAGE(contains(help.output, "usage:   " + std::string(program)), help.output);
  }
}
