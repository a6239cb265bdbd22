// eval: the same numbers on every mesh, questions, logits, and what is refused.
#include <doctest/doctest.h>

#include <fstream>

#include "data/npy.h"
#include "tests/cli/support.h"

using namespace trireme::testing;

namespace eval_test {
namespace {

/// The number behind `key` in a line of JSON.
double number(const std::string& json, const std::string& key) {
  const std::size_t at = json.find("\"" + key + "\":");
  return at == std::string::npos ? -1 : std::stod(json.substr(at + key.size() + 3));
}

}  // namespace

TEST_CASE("eval prints the same numbers on every mesh") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  std::ofstream(work.folder / "part.txt") << "ABCDEFGHABCDEFGHIJKLABCABCABCABCDDDDAAAABBBB";
  std::ofstream(work.folder / "q.jsonl")
      << "{\"query\": \"ABC\", \"choices\": [\"D\", \"AB\", \"CCC\"], \"gold\": 0, \"delimiter\": \"\"}\n"
         "{\"context\": \"AB\", \"continuation\": \"C\", \"delimiter\": \"\"}\n";
  std::ofstream(work.folder / "ids.json") << "[0, 1, 2, 3, 4]";
  const std::string flags = "--checkpoint " + work.path("run") + " --data " + work.path("part.txt") +
                            " --stride 3 --choices " + work.path("q.jsonl") + " --json --ids " + work.path("ids.json") +
                            " --logits ";
  const auto evaluate = [&](const std::string& mesh) {
    const Result result = run("eval", flags + work.path("l.npy") + " --mesh " + mesh + " 2>/dev/null");
    INFO(result.output);
    REQUIRE(result.code == 0);
    return result.output;
  };
  const std::string one = evaluate("dp=1");
  const trireme::Tensor logits = trireme::read_npy(work.path("l.npy"));
  CHECK(logits.size(0) == 5);
  CHECK(number(one, "tokens") == 43);
  CHECK(number(one, "bytes") == 43);
  CHECK(number(one, "questions") == 2);
  CHECK(number(one, "loss") > 0);
  CHECK(std::abs(number(one, "bits_per_byte") - number(one, "loss") / std::log(2.0)) < 1e-9);
  for (const std::string mesh : {"dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2"}) {
    const std::string other = evaluate(mesh);
    CAPTURE(mesh);
    CHECK(std::abs(number(other, "loss") - number(one, "loss")) < 1e-5);
    CHECK(number(other, "accuracy") == number(one, "accuracy"));
    const trireme::Tensor same = trireme::read_npy(work.path("l.npy"));
    REQUIRE(same.count() == logits.count());
    for (std::int64_t i = 0; i < same.count(); ++i)
      CHECK(std::abs(same.data<float>()[i] - logits.data<float>()[i]) < 1e-4F);
  }
  const Result process = run("eval", flags + work.path("l.npy") + " --ranks mpi 2>/dev/null");
  CHECK(process.code == 0);
  CHECK(number(process.output, "loss") == number(one, "loss"));
  const Result text =
      run("eval", "--checkpoint " + work.path("run") + " --data " + work.path("part.txt") + " 2>/dev/null");
  CHECK(text.output.starts_with("43 tokens, 43 bytes, stride 16: loss "));
  const Result each =
      run("eval", "--checkpoint " + work.path("run") + " --choices " + work.path("q.jsonl") + " --each 2>/dev/null");
  CHECK(occurrences(each.output, "\n") == 2);
  CHECK(each.output.starts_with("{\"question\":0,\"answer\":0,\"right\":"));
  CHECK(contains(each.output, ",\"options\":[{\"logprob\":-"));
  CHECK(occurrences(each.output, "\"right\":true") == static_cast<int>(2 * number(one, "accuracy")));
  std::ofstream(work.folder / "long.jsonl")
      << "{\"query\": \"ABCABCABCABCABCABC\", \"choices\": [\"D\", \"AB\"], \"gold\": 0, \"delimiter\": \"\"}\n";
  const Result cut =
      run("eval", "--checkpoint " + work.path("run") + " --choices " + work.path("long.jsonl") + " --each");
  CHECK(contains(cut.output, "warning: 1 of 1 questions is longer than the model's context of 16 tokens"));
  CHECK(contains(cut.output, "1 questions: accuracy "));  // on standard error
}

TEST_CASE("eval computes no more rows than a text has, and no longer ones") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  std::ofstream(work.folder / "short.txt") << "ABCDEFGH";
  const auto loss = [&](const std::string& flags) {
    const Result result = run("eval", "--checkpoint " + work.path("run") + " --json --data " + flags + " 2>/dev/null");
    CHECK_MESSAGE(result.code == 0, result.output);
    return number(result.output, "loss");
  };
  const std::string text = work.path("short.txt");
  for (const std::string mesh : {"dp=1", "dp=2", "pp=2", "cp=2", "tp=2"})
    CHECK(std::abs(loss(text + " --batch 1073741824 --mesh " + mesh) - loss(text + " --batch 1")) < 1e-5);
  // Windows of 3 tokens: those of a stride, but each sees no more.
  CHECK(std::abs(loss(text + " --context 3 --mesh pp=2") - loss(text + " --context 3")) < 1e-5);
  CHECK(loss(text + " --context 3") != loss(text + " --stride 3"));
}

TEST_CASE("what eval cannot do is refused") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  const std::string flags = "--checkpoint " + work.path("run");
  check_refused(run("eval", flags), 64, {"there is nothing to do"});
  check_refused(run("eval", "--data x"), 64, {"--checkpoint is missing"});
  check_refused(run("eval", flags + " --data " + work.path("text.txt") + " --stride 17"), 64,
                {"--stride 17", "context of 16"});
  check_refused(run("eval", flags + " --data " + work.path("text.txt") + " --context 17"), 64,
                {"--context 17", "context of 16"});
  check_refused(run("eval", flags + " --data " + work.path("text.txt") + " --context 8 --stride 9"), 64,
                {"--stride 9", "context of 8"});
  check_refused(run("eval", flags + " --choices x --stride 3"), 64, {"--stride"});
  check_refused(run("eval", flags + " --ids x"), 64, {"--logits"});
  std::ofstream(work.folder / "q.jsonl") << "\n{\"query\": 3}\n";
  check_refused(run("eval", flags + " --choices " + work.path("q.jsonl")), 65,
                {"q.jsonl line 2", "'choices' is missing"});
  std::ofstream(work.folder / "ids.json") << "[0, 4000]";
  check_refused(run("eval", flags + " --ids " + work.path("ids.json") + " --logits l.npy"), 65, {"entry 1 is 4000"});
  check_refused(run("eval", flags + " --data " + work.path("text.txt") + " --mesh tp=3"), 64, {"tp=3"});
}

TEST_CASE("a model whose weights are not finite has no score") {
  const Workplace work;
  REQUIRE(run("train_gpt", work.small_run() + "--export-hf on --checkpoint-every 4 --steps 4 --out " + work.path("run"))
              .code == 0);
  const std::string model = work.path("run/checkpoints/step_00000004/hf");
  std::string weights = content_of(model + "/model.safetensors");
  weights.replace(weights.size() - 4, 4, std::string("\0\0\xC0\x7F", 4));  // NaN in f32
  std::ofstream(model + "/model.safetensors", std::ios::binary) << weights;
  std::ofstream(work.folder / "q.jsonl") << "{\"query\": \"ABC\", \"choices\": [\"D\", \"AB\"], \"gold\": 0}\n";
  for (const std::string& what : {" --data " + work.path("text.txt"), " --choices " + work.path("q.jsonl")})
    for (const char* json : {"", " --json"})
      check_refused(run("eval", "--checkpoint " + model + what + json), 77, {"is nan", "use another checkpoint"});
  check_refused(run("train_gpt", "--data " + work.path("text.txt") + " --out none --steps 1 --init-from " + model), 65,
                {"[init-from]", "is not finite", "use another model"});
  std::ofstream(model + "/model.safetensors") << "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
  check_refused(run("eval", "--checkpoint " + model + " --data " + work.path("text.txt")), 65,
                {"model.safetensors is a pointer of Git LFS", "git lfs pull"});
}

}  // namespace eval_test
