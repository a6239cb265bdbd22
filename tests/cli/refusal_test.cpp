// Invalid requests: each ends the program before any training, with the exit code of its kind and one message that
// names what was asked, what is possible and the flag to change. The message is printed once, also with eight ranks.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/cpu/processor.h"
#include "core/io.h"
#include "tests/cli/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr const char* eight_ranks = "--mesh dp=2,tp=2,pp=2 ";

}  // namespace

TEST_CASE("flags") {
  const Workplace work;
  const std::string small = work.small_run() + eight_ranks;
  check_refused(run("train_gpt", small + "--stpes 5"), 64, {"unknown flag --stpes", "--steps"});
  check_refused(run("train_gpt", small + "--steps many"), 64, {"--steps", "expected an integer", "\"many\""});
  check_refused(run("train_gpt", small + "--dropout 1.5"), 64, {"--dropout", "[0, 1)", "\"1.5\""});
  check_refused(run("train_gpt", small + "--lr"), 64, {"--lr has no value"});
  check_refused(run("train_gpt", small + "--model gpt5"), 64, {"--model", "gpt2-124m", "\"gpt5\""});
  check_refused(run("train_gpt", ""), 64, {"--data is missing"});
  check_refused(run("train_gpt", small + "--prometheus localhost"), 64, {"'localhost' is not an address"});
  for (const std::string empty : {"--out \"\"", "--out="})
    check_refused(run("train_gpt", small + empty), 64,
                  {"--out is empty; expected DIR|auto|none; give one, or drop --out"});
  check_refused(run("generate", "--promt x"), 64, {"unknown flag --promt", "--prompt"});
}

TEST_CASE("flags of the other programs that are missing, empty, or contradict each other") {
  const Workplace work;
  check_refused(run("generate", "--checkpoint x"), 64, {"--prompt is missing or empty"});
  check_refused(run("eval", "--checkpoint x --ids 1"), 64, {"--ids 1 without --logits", "--logits FILE.npy"});
  check_refused(run("checkpoint", "inspect x --weights"), 64,
                {"inspect does not take \"--weights\"", "--configuration"});
  check_refused(run("plot", "x --svg="), 64, {"--svg is empty"});
  check_refused(run("pictures", ""), 64, {"no folder is given", "--out docs/pictures"});
  write_file(work.path("text.txt"), "some text");
  check_refused(run("prepare_data", "--data " + work.path("text.txt") + " --out " + work.path("shards") +
                                        " --train-bpe --vocab 300 --tokenizer byte"),
                64, {"--train-bpe and --tokenizer byte are two tokenizers"});
}

TEST_CASE("algorithms of collectives, and links") {
  const Workplace work;
  const std::string three = work.small_run() + "--mesh dp=3 --global-batch 6 ";
  check_refused(run("train_gpt", three + "--collectives halving"), 64,
                {"halving needs groups of 1, 2, 4, ... ranks, got dp=3", "--collectives ring"});
  check_refused(run("train_gpt", three + "--collectives hierarchical"), 64, {"expected --links FILE"});
  const auto with_links = [&](const std::string& text) {
    write_file(work.path("links.json"), text);
    return run("train_gpt", three + "--links " + work.path("links.json"));
  };
  const std::string within = "\"within\":{\"latency_us\":1,\"gb_per_s\":1}",
                    between = "\"between\":{\"latency_us\":1,\"gb_per_s\":1}";
  check_refused(with_links("{}"), 64, {"has no \"ranks_per_node\""});
  check_refused(with_links("{\"ranks_per_node\":1," + within + "}"), 64, {"has no \"between\""});
  check_refused(with_links("{\"ranks_per_node\":2," + within + "," + between + "}"), 64,
                {"\"ranks_per_node\" is 2, and does not divide the number of ranks, 3"});
  check_refused(with_links("{\"ranks_per_node\":1," + within + "," + between + ",\"speed\":1}"), 64,
                {"a field \"speed\"; expected only between, oversubscription"});
  check_refused(with_links("{\"ranks_per_node\":1," + within + ",\"between\":{\"latency_us\":-1,\"gb_per_s\":1}}"), 64,
                {"\"latency_us\" is -1; expected a number from 0"});
  check_refused(with_links("{\"ranks_per_node\":1," + within + "," + between + ",\"topology\":\"torus\"}"), 64,
                {"a torus has its extents in \"torus\""});
  for (const auto& [extents, count] :
       {std::pair{"[2]", "2 nodes"},
        std::pair{"[2,3,3,5,5,5,7,11,13,389,631,2417,2833,137191]", "too many nodes"},  // 2, modulo 2^64
        std::pair{"[65536,65536,65536,65536,2]", "too many nodes"}})
    check_refused(with_links("{\"ranks_per_node\":1," + within + "," + between +
                             ",\"topology\":\"torus\",\"torus\":" + extents + "}"),
                  64, {std::string("\"torus\" has ") + count + "; expected 3, that is 3 / 1"});
  check_refused(run("train_gpt", three + "--links " + work.path("none.json")), 64, {"none.json"});
}

TEST_CASE("the history of data parallelism") {
  check_refused(run("history", "--steps 10"), 64, {"--steps", "10", "40"});
  check_refused(run("history", "--only hogwild --steps 50"), 64, {"--steps has no effect with --only hogwild"});
  check_refused(run_with("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0", "history", ""), 64,
                {"start it without mpirun"});
}

TEST_CASE("a pipe in the place of metrics.jsonl") {
  const Workplace work;
  const std::string flags = work.small_run() + "--decay-steps 9 --mesh dp=2 --out " + work.path("run");
  CHECK(run("train_gpt", flags).code == 0);
  CHECK(shell(fmt::format("cd {} && rm metrics.jsonl && mkfifo metrics.jsonl", work.path("run"))).code == 0);
  check_refused(run("train_gpt", flags + " --steps 9 --resume auto"), 65,
                {"[out] " + work.path("run/metrics.jsonl") +
                 " is not a regular file but a pipe; expected a regular file; choose another --out"});
}

TEST_CASE("a GPU that cannot be used is an error, and the message says what was looked for") {
  const Workplace work;
  // The reason depends on the machine and the build. The program must never run on the host instead.
  const auto check_device = [](const std::string& program, const std::string& arguments) {
    const Result result = run(program, arguments + " --device cuda");
    check_refused(result, 64, {"[device] --device cuda: ", "use --device cpu"});
    INFO(result.output);
    CHECK((contains(result.output, "built without CUDA") || contains(result.output, "no NVIDIA driver") ||
           contains(result.output, "the driver ") || contains(result.output, "too old")));
    CHECK(run(program, "--help").output.find("--device") != std::string::npos);
  };
  check_device("train_gpt", work.small_run());
  check_device("train_gpt", work.small_run() + eight_ranks + "--dry-run");
  check_device("parity", "--mesh tp=2");
  check_device("generate", "--checkpoint " + work.path("none") + " --prompt A");
  check_refused(run("train_gpt", work.small_run() + "--device tpu"), 64, {"--device", "cuda", "\"tpu\""});
  // Implementations for GPUs only: in a build without CUDA the message names those of the CPU first.
  for (const std::string asked : {"--gemm sm90", "--gemm cublaslt", "--attention sm80", "--attention cudnn"}) {
    const Result result = run("train_gpt", work.small_run() + asked);
    check_refused(result, 64, {asked});
    CHECK((contains(result.output, "built without ") || contains(result.output, "is not for --device cpu")));
    if (!contains(result.output, "built without CUDA")) continue;
    CHECK(contains(result.output, " is for GPUs, and "));
    CHECK(contains(result.output, "expected one of --device cpu: "));
    CHECK(contains(result.output, contains(asked, "--gemm") ? "cpu: trireme, eigen, " : "cpu: trireme, auto; "));
    CHECK(contains(result.output, "use one of these, or --device cuda with a build configured with -DTRIREME_CUDA=ON"));
  }
}

TEST_CASE("faults without the flag that allows them, and unknown faults") {
  const Workplace work;
  const auto with = [&](const char* variable, const char* value, const std::string& flags) {
    ::setenv(variable, value, 1);
    const Result result = run("train_gpt", work.small_run() + flags);
    ::unsetenv(variable);
    return result;
  };
  for (const char* variable : {"TRIREME_FAULT", "TRIREME_IO_FAULT"}) {
    const char* value = variable == std::string("TRIREME_FAULT") ? "kill@step=2" : "kind=kill,op=3";
    check_refused(with(variable, value, ""), 64, {variable, value, "--allow-fault-injection"});
    check_refused(with(variable, "nonsense", "--allow-fault-injection"), 64, {variable, "'nonsense'", "expected "});
  }
  check_refused(with("TRIREME_FAULT", "kill@step=2,rank=1", "--allow-fault-injection"), 64, {"rank 1", "below 1"});
  check_refused(with("TRIREME_FAULT", "kill@step=7", "--allow-fault-injection"), 64, {"kill at step 7", "--steps 6"});
}

TEST_CASE("configuration files") {
  const Workplace work;
  const auto with_config = [&](const std::string& text) {
    std::ofstream(work.folder / "c.json") << text;
    return run("train_gpt", work.small_run() + eight_ranks + "--config " + work.path("c.json"));
  };
  check_refused(with_config(R"({"stpes": 5})"), 64, {"unknown key \"stpes\"", "c.json", "\"steps\""});
  check_refused(with_config(R"({"seed": "5"})"), 64, {"\"seed\" in ", "expected an integer"});
  check_refused(with_config(R"({"steps": 5,, "lr": 1})"), 65, {"c.json byte 12: not valid JSON"});
  check_refused(run("train_gpt", "--config " + work.path("absent.json")), 64, {"absent.json"});
}

TEST_CASE("model, mesh and batch that do not go together") {
  const Workplace work;
  const std::string small = work.small_run();
  check_refused(run("train_gpt", small + "--heads 3 --width 15 --mesh tp=2"), 64,
                {"--heads 3", "tp=2", "tp of 1 or 3"});
  check_refused(run("train_gpt", small + "--width 17"), 64, {"--width 17", "--heads 2"});
  check_refused(run("train_gpt", small + "--mesh pp=3"), 64, {"--layers 2", "pp=3", "at most 2"});
  check_refused(run("train_gpt", small + "--mesh dp=3"), 64,
                {"--global-batch 8", "--micro-batch 2 x dp 3 = 6", "6 or 12"});
  check_refused(run("train_gpt", small + "--micro-batches 3"), 64,
                {"--micro-batch 2 x dp 1 x --micro-batches 3 = 6", "--global-batch is 8"});
  check_refused(run("train_gpt", small + "--mesh dp=2,qp=2"), 64, {"qp", "dp, tp, pp, cp and ep"});
  check_refused(run("train_gpt", small + "--mesh tp=0"), 64, {"tp", "'0'"});
  check_refused(run("train_gpt", small + "--vocab 5"), 64, {"--vocab 5", "at least 40"});
  check_refused(run("train_gpt", small + "--ranks mpi --mesh dp=2"), 64, {"2 ranks", "launcher"});
  check_refused(run("train_gpt", small + "--mesh dp=2 --reduction fast"), 64, {"--reduction fast", "mpirun"});
  check_refused(run("train_gpt", small + "--mesh pp=2 --pipeline interleaved:2"), 64,
                {"--layers 2", "2 x 2 = 4 stages", "at most 2"});
  check_refused(run("train_gpt", small + "--pipeline interleaved:x"), 64, {"'interleaved:x'", "--pipeline"});
  check_refused(run("train_gpt", small + "--mesh pp=2 --stage-layers 2,1"), 64, {"2 + 1 = 3 layers", "has 2"});
  check_refused(run("schedule", "--pipeline zigzag"), 64, {"'zigzag'", "zero-bubble"});
  check_refused(run("schedule", "--costs 1:2"), 64, {"'1:2'", "forward:input:weight"});
  check_refused(run("train_gpt", small + "--min-lr 1"), 64, {"--min-lr 1", "--lr 0.001"});
}

TEST_CASE("data") {
  const Workplace work;
  const std::string small = work.small_run() + eight_ranks;
  std::ofstream(work.folder / "empty.txt").flush();
  std::ofstream(work.folder / "short.txt") << "too short";
  std::ofstream(work.folder / "binary.txt") << "text \xff\xfe text";
  check_refused(run("train_gpt", small + "--data " + work.path("absent.txt")), 64, {"absent.txt", "does not exist"});
  check_refused(run("train_gpt", small + "--data " + work.path("empty.txt")), 65, {"empty.txt", "0 bytes"});
  check_refused(run("train_gpt", small + "--data " + work.path("short.txt")), 65,
                {"short.txt", "9 tokens", "--context 16"});
  check_refused(run("train_gpt", small + "--data " + work.path("binary.txt")), 65, {"binary.txt", "byte 5"});
  check_refused(run("train_gpt", small + "--tokenizer words"), 64, {"\"words\"", "--tokenizer"});
}

TEST_CASE("the folder of --out") {
  const Workplace work;
  const std::string small = work.small_run() + eight_ranks;
  std::filesystem::create_directories(work.folder / "old");
  std::ofstream(work.folder / "old" / "metrics.jsonl") << "{}\n";
  check_refused(run("train_gpt", small + "--out " + work.path("old")), 64,
                {"old already holds a run", "--out", "ended before it saved anything"});
  check_refused(run("train_gpt", small + "--out " + work.path("text.txt")), 64, {"text.txt is a file", "--out"});
  check_refused(run("train_gpt", small + "--out /proc/trireme/run"), 74, {"/proc/trireme", "--out"});
  check_refused(run("train_gpt", small + "--resume " + work.path("absent")), 64, {"absent"});
}

TEST_CASE("a refusal under a launcher is printed once by eight processes") {
  const Workplace work;
  const std::string small = work.small_run();
  std::filesystem::create_directories(work.folder / "old");
  std::ofstream(work.folder / "old" / "metrics.jsonl") << "{}\n";
  const auto refused = [&](const std::string& flags, int code, const std::vector<std::string>& parts) {
    check_ranks_refused([&] { return run_mpi(8, "train_gpt", small + flags); }, code, parts);
  };
  refused(eight_ranks + std::string("--stpes 5"), 64, {"--steps"});
  refused("--mesh dp=2,tp=2", 64, {"2 x 2 x 1 x 1 = 4 ranks", "the launcher started 8"});
  refused(eight_ranks + ("--out " + work.path("old")), 64, {"already holds a run"});
  // Only one rank finds this, after MPI has started.
  refused(eight_ranks + std::string("--out /proc/trireme/run"), 74, {"/proc/trireme", "--out"});
}

TEST_CASE("ranks under a launcher that read different texts") {
  const Workplace work;
  std::string small = work.small_run() + "--mesh dp=2 ";
  small.replace(small.find(work.path("text.txt")), work.path("text.txt").size(), "text.txt");
  std::ifstream file(work.folder / "text.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto train = [&](const std::string& text_of_rank_1) {
    for (const std::string name : {"a", "b"}) {
      std::filesystem::create_directories(work.folder / name);
      std::ofstream(work.folder / name / "text.txt") << (name == "a" ? text : text_of_rank_1);
    }
    return run_mpi_with({"-C " + work.path("a"), "-C " + work.path("b")}, "train_gpt", small);
  };
  const Result equal = train(text);
  INFO(equal.output);
  CHECK(equal.code == 0);
  check_ranks_refused(
      [&] { return train(text + "A"); }, 65,
      {"[configuration] the number of validation tokens in --data differs between ranks: 600 on rank 0; 601 on "
       "rank 1; expected the same tokens; give every rank the same files under --data"});
  std::string other = text;
  std::swap(other[100], other[101]);
  check_ranks_refused([&] { return train(other); }, 65,
                      {"[configuration] the text of --data differs between ranks: hash ", " on rank 1; "});
}

TEST_CASE("ranks under a launcher that would compute different bits") {
  const auto& units = trireme::cpu::bf16_units();
  if (units.size() == 1) return;  // this processor has one such unit only
  const Workplace work;
  const auto train = [&](const std::string& dtype) {
    return run_mpi_with(
        {fmt::format("TRIREME_ISA={}", name(units.front())), fmt::format("TRIREME_ISA={}", name(units.back()))},
        "train_gpt", work.small_run() + "--mesh dp=2 --dtype " + dtype);
  };
  check_ranks_refused([&] { return train("bf16"); }, 64,
                      {"[configuration] the processor's unit for products of bf16 differs between ranks: " +
                           std::string(name(units.front())) + " on rank 0; ",
                       std::string(name(units.back())) + " on rank 1; ", "set TRIREME_ISA on every rank"});
  CHECK(train("f32").code == 0);  // f32 has one implementation on every processor
}
