// Training on several sources, on packed documents, and on files of other programs.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/support.h"

using namespace trireme::testing;

namespace data_test {

namespace fs = std::filesystem;

/// Lines of 3 to 40 characters; the newline, id 0 of the character tokenizer, ends each.
std::string lines(int count, char first) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < 3 + i * i * 7 % 38; ++k) text += static_cast<char>(first + (i + k * k) % 9);
    text += '\n';
  }
  return text;
}

std::vector<nlohmann::json> metrics_of(const std::string& out) {
  std::vector<nlohmann::json> all;
  std::ifstream file(out + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

TEST_CASE("packed documents of two sources: resumed twice, on other meshes") {
  const Workplace work;
  write_plainly(work.folder / "a", lines(200, 'a'));
  write_plainly(work.folder / "b", lines(100, 'j'));
  for (const std::string packing : {"best-fit", "best-fit-crop", "cut"}) {
    const std::string flags =
        work.small_run() +
        fmt::format(
            "--data {0}:0.7,{1}:0.3 --packing {2} --document-mask on --document-separator 0 --decay-steps 9 "
            "--log-every 1 --checkpoint-every 3 ",
            work.path("a"), work.path("b"), packing);
    const auto train = [&](const std::string& more) {
      const Result result = run("train_gpt", flags + more);
      INFO(result.output);
      REQUIRE(result.code == 0);
      return result.output;
    };
    const std::string whole = work.path(packing + "_whole"), parts = work.path(packing + "_parts");
    const std::string output = train("--steps 9 --out " + whole);
    CHECK(contains(output, "70 % of the samples"));
    CHECK(contains(output, "epochs in 9 steps"));
    CHECK(contains(output, packing == "best-fit" ? "best fit: "
                           : packing == "cut"    ? "data "
                                                 : "best fit with cropping: "));
    train("--steps 3 --mesh dp=2 --out " + parts);
    train(fmt::format("--steps 6 --mesh tp=2 --out {0} --resume {0}", parts));
    train(fmt::format("--steps 9 --mesh dp=2,pp=2 --out {0} --resume {0}", parts));
    const auto once = metrics_of(whole), again = metrics_of(parts);
    REQUIRE(once.size() == 9);
    REQUIRE(again.size() == 9);
    for (std::size_t i = 0; i < 9; ++i) {
      CHECK(std::abs(once[i]["loss"].get<double>() - again[i]["loss"].get<double>()) < 1e-4);
      CHECK(once[i]["epochs"] == again[i]["epochs"]);
      REQUIRE(once[i]["epochs"].size() == 2);
    }
    CHECK(once[8]["epochs"][work.path("a")].get<double>() > once[0]["epochs"][work.path("a")].get<double>());
    const Result other = run("train_gpt", flags + fmt::format("--steps 10 --resume {} --data {}:0.5,{}:0.5", whole,
                                                              work.path("a"), work.path("b")));
    INFO(other.output);
    CHECK(other.code == 64);
  }
}

TEST_CASE("a run whose data is the folder that it writes into goes on with the data that it began with") {
  const Workplace work;
  fs::create_directory(work.folder / "t");
  fs::rename(work.folder / "text.txt", work.folder / "t" / "a.txt");
  const auto here = [&](const std::string& lines) {
    return shell("cd " + work.path("t") + "; PATH=" TRIREME_BIN ":$PATH\n" + lines);
  };
  const std::string flags =
      "train_gpt --data . --layers 2 --heads 2 --width 32 --context 16 --micro-batch 2 --threads 1 --eval-batches 1 "
      "--checkpoint-every 3 --export-hf on --tensorboard on --profile profile.json ";
  const Result first = here(flags + "--steps 6 --out run 2>&1 | tee said.txt; " + flags +
                            "--steps 6 --resume run/checkpoints/step_00000003 --out other > log.txt 2>&1; plot run "
                            "--svg curves.svg; schedule --svg schedule.svg; view run --out page.html; prepare_data "
                            "--data a.txt --out shards");
  INFO(first.output);
  REQUIRE(first.code == 0);
  const Result second = here(flags + "--steps 9 --out run --resume auto");
  INFO(second.output);
  CHECK(second.code == 0);
  CHECK(contains(second.output, "resuming after step 6"));
  CHECK(contains(second.output, " written by Trireme (the first: ./curves.svg)"));
  // Also for a new run: one text, and nothing else.
  const Result text = here("prepare_data --data . --out shards2");
  INFO(text.output);
  CHECK(contains(text.output, "documents: 1 with 6000 bytes"));
  write_plainly(work.folder / "t" / "b.txt", "more");
  const Result more = here(flags + "--steps 12 --out run --resume auto");
  CHECK(more.code == 64);
  CHECK(contains(more.output, "b.txt is new (4 bytes)"));
  const Result changed = here("rm b.txt; sed -i s/a/b/ a.txt; " + flags + "--steps 12 --out run --resume auto");
  CHECK(changed.code == 64);
  CHECK(contains(changed.output, "the content of a.txt has changed"));
}

TEST_CASE("packed dialogues: resumed twice, on other meshes") {
  const Workplace work;
  std::string dialogues;
  for (int i = 0; i < 12; ++i)
    dialogues += fmt::format("{{\"prompt\": \"{}\", \"answer\": \"{}\"}}\n",
                             std::string(1 + i % 4, static_cast<char>('a' + i)), std::string(2 + i * i % 9, 'x'));
  write_plainly(work.folder / "d.jsonl", dialogues);
  write_plainly(work.folder / "t.jinja",
                "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% "
                "endif %}");
  const std::string flags = fmt::format(
      "--data {} --chat-template {} --tokenizer byte --val-fraction 0 --layers 2 --heads 2 --width 16 --context 24 "
      "--micro-batch 2 --global-batch 4 --lr 1e-2 --warmup-steps 0 --decay-steps 9 --log-every 1 --checkpoint-every 3 "
      "{}",
      work.path("d.jsonl"), work.path("t.jinja"), patient);
  const std::string whole = work.path("whole"), parts = work.path("parts");
  for (const std::string& more :
       {"--steps 9 --out " + whole, "--steps 3 --mesh dp=2 --out " + parts,
        fmt::format("--steps 6 --mesh tp=2 --out {0} --resume {0}", parts),
        fmt::format("--steps 9 --mesh dp=2,pp=2 --micro-batch 1 --out {0} --resume {0}", parts)}) {
    const Result result = run("train_gpt", flags + more);
    INFO(result.output);
    REQUIRE(result.code == 0);
  }
  const auto once = metrics_of(whole), again = metrics_of(parts);
  REQUIRE(once.size() == 9);
  REQUIRE(again.size() == 9);
  for (std::size_t i = 0; i < 9; ++i)
    CHECK(std::abs(once[i]["loss"].get<double>() - again[i]["loss"].get<double>()) < 1e-4);
}

TEST_CASE("training on files of nanoGPT; what packing and mixtures refuse") {
  const Workplace work;
  REQUIRE(run("prepare_data", fmt::format("--data {} --out {} --tokenizer byte --shard-format nanogpt",
                                          work.path("text.txt"), work.path("nano")))
              .code == 0);
  const Result result = run("train_gpt", work.small_run() + "--steps 2 --data " + work.path("nano"));
  INFO(result.output);
  CHECK(result.code == 0);
  CHECK(contains(result.output, "5,400 training and 600 validation tokens"));
  check_refused(run("train_gpt", work.small_run() + "--packing best-fit"), 64,
                {"--packing best-fit needs a token that ends a document", "--document-separator ID"});
  check_refused(run("train_gpt", work.small_run() + "--data a:0.5,b:x"), 64,
                {"a:0.5,b:x", "the part \"b:x\" has no weight"});
  check_refused(run("train_gpt", work.small_run() + "--data a:0.5,b:0.5"), 64, {"a does not exist"});
}

}  // namespace data_test
