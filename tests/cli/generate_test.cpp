// generate: text from what a run saved.
#include <doctest/doctest.h>

#include <fstream>

#include "tests/cli/support.h"

using namespace trireme::testing;

TEST_CASE("generate continues a prompt with the saved model, the same for the same seed") {
  const Workplace work;
  const Result trained = run("train_gpt", work.small_run() + "--mesh tp=2 --out " + work.path("run"));
  INFO(trained.output);
  REQUIRE(trained.code == 0);

  const std::string flags = "--checkpoint " + work.path("run") + " --prompt ABC --length 20 ";
  const Result text = run("generate", flags);
  INFO(text.output);
  CHECK(text.code == 0);
  const std::string said = "checkpoint: " + work.path("run") + "/checkpoints/step_00000006\n";  // on standard error
  CHECK(text.output.starts_with(said + "ABC"));
  const Result alone = run("generate", flags + "2>/dev/null");
  CHECK(said + alone.output == text.output);
  CHECK(alone.output.size() == 24);  // prompt, 20 characters, newline
  CHECK(run("generate", flags).output == text.output);
  CHECK(run("generate", flags + "--seed 2").output != text.output);
  CHECK(run("generate", flags + "--temperature 0 --seed 1").output ==
        run("generate", flags + "--temperature 0 --seed 2").output);
  CHECK(run("generate", flags + "--top-k 1").output == run("generate", flags + "--temperature 0").output);

  const Result outside = run("generate", "--checkpoint " + work.path("run") + " --prompt 'AB!C'");
  CHECK(outside.code == 64);
  CHECK(occurrences(outside.output, "trireme: FATAL[64] ") == 1);
  CHECK(contains(outside.output, "--prompt"));
  CHECK(contains(outside.output, "byte 2"));

  for (const std::string unused : {"--top-k 3", "--top-p 0.5"}) {
    const Result ignored = run("generate", flags + "--temperature 0 " + unused);
    CHECK(ignored.code == 64);
    CHECK(contains(ignored.output, "have no effect with --temperature 0"));
  }

  const Result absent = run("generate", "--checkpoint " + work.path("none") + " --prompt A");
  CHECK(absent.code == 64);
  CHECK(contains(absent.output, work.path("none")));
}

TEST_CASE("threads and processors that cannot be are refused before any text") {
  const Result threads = run("generate", "--checkpoint none --prompt A --threads 4097");
  CHECK(threads.code == 64);
  CHECK(contains(threads.output, "--threads: expected an integer in [1, 4096]"));
  const Result processor = run_with("TRIREME_ISA=nonsense", "generate", "--checkpoint none --prompt A");
  CHECK(processor.code == 64);
  CHECK(contains(processor.output, "TRIREME_ISA is 'nonsense'"));
}

TEST_CASE("several processes would all write the same text") {
  const Result twice = run_mpi(2, "generate", "--checkpoint none --prompt A");
  INFO(twice.output);
  CHECK(occurrences(twice.output, "FATAL[64] [generate] 2 processes would all write the same text") == 1);
}

TEST_CASE("a damaged checkpoint is bad data") {
  const Workplace work;
  std::filesystem::create_directories(work.folder / "run/checkpoints/step_00000001");
  std::ofstream(work.folder / "run/checkpoints/step_00000001/manifest.json") << "not a checkpoint at all";
  const Result result = run("generate", "--checkpoint " + work.path("run") + " --prompt A");
  INFO(result.output);
  CHECK(result.code == 65);
  CHECK(occurrences(result.output, "trireme: FATAL[65] ") == 1);
  CHECK(contains(result.output, "step_00000001"));
}

TEST_CASE("a prompt from a file or standard input, several samples, and the end of a text") {
  const Workplace work;
  std::ofstream(work.folder / "prompt.txt") << "ABC";
  std::ofstream(work.folder / "nothing.txt");
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  const std::string flags = "--checkpoint " + work.path("run") + " --length 20 ";
  const auto text_of = [&](const std::string& arguments) {
    return run("generate", flags + arguments + " 2>/dev/null").output;
  };
  const std::string text = text_of("--prompt ABC");
  CHECK(text_of("--prompt-file " + work.path("prompt.txt")) == text);
  CHECK(text_of("--prompt-file - < " + work.path("prompt.txt")) == text);
  const auto refused = [&](const std::string& arguments, int code, const std::string& part) {
    const Result result = run("generate", flags + arguments);
    INFO(result.output);
    CHECK(result.code == code);
    CHECK(contains(result.output, part));
  };
  refused("--prompt-file " + work.path("nothing.txt"), 64, "nothing.txt is empty");
  refused("--prompt-file " + work.path("absent.txt"), 74, "absent.txt");
  refused("--prompt-file " + work.path("prompt.txt") + " --prompt A", 64, "two prompts");
  refused("--prompt A --samples 2 --temperature 0", 64, "--samples 2 with --temperature 0");
  refused("--prompt \"AB$(printf '\\377')\"", 64, "--prompt");

  const Result two = run("generate", flags + "--prompt ABC --samples 2 --speed");
  INFO(two.output);
  CHECK(contains(two.output, "--- sample 1 of 2 ---\n" + text + "--- sample 2 of 2 ---\n"));
  CHECK(contains(two.output, text_of("--prompt ABC --seed 1338")));
  CHECK(contains(two.output, "40 tokens in "));
  CHECK(contains(two.output, " tok/s\n"));
}
