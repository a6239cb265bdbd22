// The benchmark programs: the lines of JSON of those that bench/compare.py runs in turns, and what every benchmark
// refuses.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/io.h"
#include "tests/cli/support.h"
#include "tests/support/sanitized.h"

using namespace trireme::testing;

namespace {

const std::string small_model =
    "--layers 1 --heads 2 --width 16 --context 8 --vocab 24 --threads 1 --warm-up 1 --turns ";

/// The lines of JSON that a program prints. Its standard input `asked` has numbers of steps, one per line.
std::vector<nlohmann::json> turns(const std::string& program, const std::string& flags, const std::string& asked) {
  const Result result = shell("printf \"" + asked + "\" | " + TRIREME_BIN + "/" + program + " " + small_model + flags);
  INFO(result.output);
  REQUIRE(result.code == 0);
  std::vector<nlohmann::json> lines;
  std::istringstream output(result.output);
  for (std::string line; std::getline(output, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("step_bench answers as many steps as it is asked for, on one rank and on meshes") {
  for (const char* flags : {"--micro-batch 2", "--mesh dp=2 --global-batch 4", "--mesh tp=2,pp=1 --dtype bf16",
                            "--recompute full --micro-batches 2"}) {
    CAPTURE(flags);
    const std::vector<nlohmann::json> lines = turns("step_bench", flags, "2\\n1\\n");
    REQUIRE(lines.size() == 5);  // ready, 2 + 1 steps, end
    const nlohmann::json& ready = lines.front()["ready"];
    CHECK(ready["parameters"] == 24 * 16 + 8 * 16 + (12 * 16 * 16 + 13 * 16) + 2 * 16);  // as papers count them
    for (std::size_t i = 1; i < 4; ++i) CHECK(lines[i]["seconds"] > 0);
    const nlohmann::json& end = lines.back()["end"];
    CHECK(end["activation_bytes"] > 0);
    CHECK(end["peak_bytes"] > end["activation_bytes"]);
    CHECK(end["peak_rss"] > end["peak_bytes"]);
  }
}

TEST_CASE("recomputing every block needs less memory for activations, and step_bench says so") {
  const std::string flags = "--layers 6 --micro-batch 8 --recompute ";
  const auto bytes = [&](const char* what) {
    return turns("step_bench", flags + what, "1\\n").back()["end"]["activation_bytes"].get<double>();
  };
  CHECK(bytes("full") < 0.5 * bytes("none"));
}

TEST_CASE("generate_bench answers a line for each token") {
  const std::vector<nlohmann::json> lines = turns("generate_bench", "--prompt 3", "2\\n");
  REQUIRE(lines.size() == 4);
  CHECK(lines[2]["seconds"] > 0);
}

TEST_CASE("of tables that are looked up, generate_bench counts the one row that a token needs") {
  const auto bytes = [](const char* flags) {
    return turns("generate_bench", std::string("--prompt 3 ") + flags, "1\\n")[0]["ready"]["weight_bytes"].get<int>();
  };
  const int with_head = 4 * (24 * 16 + (12 * 16 * 16 + 13 * 16) + 2 * 16), row = 4 * 16;
  CHECK(bytes("") == with_head + row);  // a row of positions; the token table is the head
  CHECK(bytes("--tied off") == with_head + 2 * row);
  CHECK(bytes("--tied off --positions rope") == with_head + row);
}

TEST_CASE("what the benchmarks cannot measure is refused") {
  const Result processes = run("step_bench", "--ranks mpi");
  CHECK(processes.code == 64);
  CHECK(contains(processes.output, "expected no launcher"));
  const Result prompt = run("generate_bench", "--context 8 --prompt 9");
  CHECK(prompt.code == 64);
  CHECK(contains(prompt.output, "change --prompt"));
}

TEST_CASE("a line that is not a number of steps ends step_bench with an error, on every rank") {
  for (const char* mesh : {"--micro-batch 2", "--mesh dp=2,tp=2 --global-batch 4"}) {
    for (const auto& [asked, said] : {std::pair{"2\\nabc\\n1\\n", "line 2 of standard input is \"abc\""},
                                      {"-3\\n", "line 1 of standard input is \"-3\""},
                                      {"0\\n", "is \"0\""},
                                      {"1\\n\\n", "line 2 of standard input is \"\""},
                                      {"1 \\n", "is \"1 \""},
                                      {"1048577\\n", "integer in [1, 1048576]"},
                                      {"0000000000000000000000000000000000001\\n", "line 1"},
                                      {"1\\0002\\n", "line 1"}}) {
      CAPTURE(asked);
      const Result result =
          shell(std::string("printf -- \"") + asked + "\" | " + TRIREME_BIN + "/step_bench " + small_model + mesh);
      CHECK(result.code == 64);
      CHECK(contains(result.output, "FATAL[64]"));
      CHECK(contains(result.output, said));
      CHECK_FALSE(contains(result.output, "\"end\""));
    }
  }
}

TEST_CASE("every benchmark refuses what it does not know as other programs do") {
  for (const char* program : {"attention_bench", "checkpoint_bench", "comm_bench", "context_bench",
                              "exposed_communication", "gemm_bench", "generate_bench", "guards_bench", "kernel_bench",
                              "machine_bench", "step_bench", "watch_bench", "zero_memory"}) {
    CAPTURE(program);
    const Result unknown = run(program, "--nonsense");
    CHECK(unknown.code == 64);
    CHECK(contains(unknown.output, "FATAL[64]"));
    CHECK(contains(unknown.output, "--nonsense"));
    CHECK(run(program, "--help").code == 0);
    const Result processor = run_with("TRIREME_ISA=nonsense", program, "");
    CHECK(processor.code == 64);
    CHECK(contains(processor.output, "TRIREME_ISA is 'nonsense'"));
  }
}

TEST_CASE("numbers of threads that cannot be are refused by every benchmark that takes one") {
  for (const char* threads : {"-3", "0", "4097", "1000000"}) {
    CAPTURE(threads);
    for (const char* program :
         {"attention_bench --threads ", "comm_bench --threads ", "gemm_bench --threads ", "gemm_bench --threads 1,",
          "generate_bench --threads ", "kernel_bench ", "machine_bench --threads ", "step_bench --threads "}) {
      CAPTURE(program);
      const Result result = run(program + std::string(threads), "");
      CHECK(result.code == 64);
      CHECK(contains(result.output, "FATAL[64]"));
      CHECK(contains(result.output, "4096") !=
            contains(result.output, "1073741824"));  // step_bench has the flag of train_gpt
    }
  }
  const Result product = run("comm_bench", "--ranks 1024 --threads 5");
  CHECK(product.code == 64);
  CHECK(contains(product.output, "5120 threads; expected at most 4096"));
}

TEST_CASE("a benchmark that would measure nothing says what there is") {
  for (const auto& [command, names] : {std::pair{"gemm_bench --only nonsense", "{char,gpt2,decode,square}"},
                                       {"attention_bench --only nonsense", "{char,gpt2}"},
                                       {"kernel_bench 1 nonsense", "adamw, add, add bias"},
                                       {"comm_bench --only nonsense", "all_reduce"}}) {
    CAPTURE(command);
    const Result result = run(command, "");
    CHECK(result.code == 64);
    CHECK(contains(result.output, "nonsense"));
    CHECK(contains(result.output, names));
  }
}

TEST_CASE("a table that could not be written is found before anything is measured") {
  const Workplace work;
  for (const char* program : {"gemm_bench", "attention_bench", "kernel_bench"}) {
    CAPTURE(program);
    const Result nowhere = run(program, "--markdown " + work.path("absent/x.md"));
    CHECK(nowhere.code == 64);
    CHECK(contains(nowhere.output, "there is no folder \"" + work.path("absent") + "\""));
    CHECK_FALSE(contains(nowhere.output, "GB/s"));
    CHECK_FALSE(contains(nowhere.output, "GFLOP/s"));
    CHECK(run(program, "--markdown \"\"").code == 64);
    CHECK(run(program, "--markdown /").code == 64);
    CHECK(run(program, "--markdown /proc/x.md").code == 74);
  }
}

TEST_CASE("without a tokenizer --vocab auto is refused") {
  for (const char* program : {"step_bench", "generate_bench"}) {
    const Result result = run(program, "--vocab auto");
    CHECK(result.code == 64);
    CHECK(contains(result.output, "give --vocab N"));
  }
}

TEST_CASE("sizes that collectives and rings cannot have are refused") {
  for (const char* command :
       {"comm_bench --smallest 0", "comm_bench --smallest 9 --largest 8", "comm_bench --seconds nan",
        "comm_bench --mesh dp=2000", "comm_bench --dtype f3", "comm_bench --only all_reduce_fast",
        "comm_bench --device cuda", "context_bench --length 1001", "context_bench --kv-heads 3",
        "context_bench --length 9223372036854775804", "exposed_communication 4 3"}) {
    CAPTURE(command);
    const Result result = run(command, "");
    CHECK(result.code == 64);
    CHECK(contains(result.output, "FATAL[64]"));
  }
}

TEST_CASE("comm_bench refuses collectives without messages, and pictures of too many or of another algorithm's") {
  const Workplace work;
  const std::string link = R"({"latency_us": 1, "gb_per_s": 1})";
  trireme::write_file(work.path("links.json"),
                      R"({"ranks_per_node": 1, "within": )" + link + R"(, "between": )" + link + "}");
  const std::string flags = "--largest 64 --links " + work.path("links.json") + " --svg " + work.path("x.svg");
  for (const auto& [what, said] : {std::pair{" --ranks 1 --algorithms", "one rank sends no messages"},
                                   {" --ranks 1 --trace ring", "one rank sends no messages"},
                                   {" --ranks 512 --trace ring", "draws 523264 messages"},
                                   {" --ranks 4 --trace tree --only reduce_scatter", "tree has no reduce_scatter"}}) {
    CAPTURE(what);
    const Result result = run("comm_bench", flags + what);
    CHECK(result.code == 64);
    CHECK(contains(result.output, said));
    CHECK_FALSE(std::filesystem::exists(work.path("x.svg")));
  }
}

TEST_CASE("more threads than the system starts are refused, and named") {
  if (trireme::testing::sanitized) return;  // sanitizers reserve more addresses
  const Result result = shell(std::string("ulimit -v 4000000; ") + TRIREME_BIN + "/machine_bench --threads 3000");
  CHECK(result.code == 64);
  CHECK(contains(result.output, "FATAL[64]"));
  CHECK(contains(result.output, "3000 threads: the system starts no more than"));
}

TEST_CASE("benchmarks that would measure nothing are refused, with what is possible; each says its version") {
  for (const std::string program : {"gemm_bench", "attention_bench"}) {
    check_refused(run(program, "--repeats 0"), 64, {"--repeats", "not in range 1 to 1048576"});
    CHECK(contains(run(program, "--version").output, program + " of Trireme "));
  }
  check_refused(run("context_bench", "--repetitions 0"), 64, {"--repetitions", "not in range 1 to 1048576"});
}
