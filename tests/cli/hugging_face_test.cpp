// Models in Hugging Face's layout, with the programs: train_gpt --init-from and --export-hf, generate, convert.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer.h"
#include "tests/cli/support.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace hugging_face_cli_test {
namespace {

const std::string llama_flags =
    "--kv-heads 1 --norm rms --positions rope --bias off --activation swiglu --tied off --tokenizer byte ";

/// A run of two steps, and the folder that convert makes of it.
struct Models {
  Workplace work;
  std::string run_folder = work.path("run"), model = work.path("model"), small = work.small_run();

  Models() {
    const Result trained = run("train_gpt", small + llama_flags + "--steps 2 --out " + run_folder);
    INFO(trained.output);
    REQUIRE(trained.code == 0);
    const Result converted = run("convert", "hf " + run_folder + " " + model);
    INFO(converted.output);
    REQUIRE(converted.code == 0);
    CHECK(contains(converted.output, "wrote " + model + ": a llama of "));
  }
  std::string text(const std::string& checkpoint) const {
    const Result made = run("generate", "--checkpoint " + checkpoint +
                                            " --prompt ABC --length 12 --temperature 0 --stop-at-end off 2>/dev/null");
    CHECK_MESSAGE(made.code == 0, made.output);
    return made.output;
  }
};

}  // namespace

TEST_CASE("a run becomes a folder of Hugging Face, and a run again, with the same weights and text") {
  const Models m;
  CHECK(m.text(m.model) == m.text(m.run_folder));
  const Result back = run("convert", "hf " + m.model + " " + m.work.path("back"));
  CHECK_MESSAGE(back.code == 0, back.output);
  CHECK(m.text(m.work.path("back")) == m.text(m.run_folder));
  const Result again =
      run("convert", "hf " + m.work.path("back") + " " + m.work.path("again") + " --shard-megabytes 1");
  CHECK_MESSAGE(again.code == 0, again.output);
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK(!content_of(fs::path(m.model) / name).empty());
    CHECK(content_of(fs::path(m.model) / name) == content_of(fs::path(m.work.path("again")) / name));
  }
  const Result half = run("convert", "hf " + m.model + " " + m.work.path("half") + " --dtype bf16");
  CHECK_MESSAGE(half.code == 0, half.output);
  CHECK(m.text(m.work.path("half")).starts_with("ABC"));
  CHECK(contains(run("checkpoint", "inspect " + m.work.path("half")).output, "bf16"));
  check_refused(run("convert", "hf " + m.model + " " + m.work.path("back")), 64,
                {"exists and is not empty", "change TO"});
  const std::string form = "expected convert hf|gguf|peft FROM TO";
  check_refused(run("convert", ""), 64, {"there is nothing to convert", form});
  check_refused(run("convert", "hf " + m.model), 64, {"TO is missing", form});
  check_refused(run("convert", "hf a b c"), 64, {"\"c\" is one word too many"});
  check_refused(run("convert", "onnx a b"), 64, {"the first word is \"onnx\"; expected hf"});
  check_refused(run("convert", "--dtype bf16 hf a b"), 64, {"the flags come first", "behind FROM and TO"});
  const std::string to = " " + m.work.path("new") + " ";
  check_refused(run("convert", "hf " + m.work.path("none") + to), 64, {"does not exist", "GGUF file"});
  check_refused(run("convert", "hf " + m.model + "/config.json" + to), 64, {"is a file, but no GGUF file"});
  check_refused(run("convert", "gguf " + m.run_folder + to + "--tokenizer byte"), 64,
                {"--tokenizer byte has no effect here: FROM becomes a GGUF file"});
  fs::create_directory(m.work.folder / "empty");
  check_refused(run("convert", "gguf " + m.run_folder + " " + m.work.path("empty")), 64, {"is a folder", "model.gguf"});
  check_refused(run("convert", "hf " + m.model + to + "--texts-from x"), 64, {"--texts-from x", "FROM becomes a run"});
  check_refused(run("convert", "hf " + m.run_folder + to + "--base x"), 64, {"--base x", "convert peft"});
  check_refused(run("convert", "hf " + m.run_folder + to + "--dtype q8_0"), 64, {"--dtype q8_0", "a GGUF file"});
}

TEST_CASE("train_gpt begins with a folder's weights on any mesh, and exports each checkpoint") {
  const Models m;
  const std::string flags = m.small + "--init-from " + m.model + " --steps 4 --checkpoint-every 2 --log-every 1 ";
  std::vector<std::vector<double>> losses;
  for (const std::string mesh : {"dp=1", "dp=2,tp=2", "pp=2"}) {
    const std::string out = m.work.path("tuned-" + mesh);
    const Result tuned = run("train_gpt", flags + "--export-hf on --mesh " + mesh + " --out " + out);
    INFO(tuned.output);
    REQUIRE(tuned.code == 0);
    CHECK(contains(tuned.output, "exported " + out + "/checkpoints/step_00000002/hf"));
    losses.push_back(metric(out + "/metrics.jsonl", "loss"));
    CHECK(m.text(out) == m.text(out + "/checkpoints/step_00000004/hf"));
    CHECK(m.text(out + "/checkpoints/step_00000002") == m.text(out + "/checkpoints/step_00000002/hf"));
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i)
    for (const auto& other : losses) CHECK(other[i] == doctest::Approx(losses[0][i]).epsilon(1e-5));
  // The texts of the tokenizer are those of the folder that the run began with.
  CHECK(content_of(m.work.path("tuned-pp=2") + "/checkpoints/step_00000004/hf/tokenizer.json") ==
        content_of(m.model + "/tokenizer.json"));
  // A run can be the beginning, too; the first loss then is that of its last weights.
  const std::string in_bf16 = m.work.path("bf16"), from_bf16 = m.work.path("from-bf16");
  for (const std::string& flags : {m.run_folder + " --dtype bf16 --steps 2 --out " + in_bf16,
                                   in_bf16 + " --steps 1 --warmup-steps 0 --out " + from_bf16}) {
    const Result result = run("train_gpt", m.small + "--init-from " + flags);
    INFO(result.output);
    REQUIRE(result.code == 0);
  }
  CHECK(metric(from_bf16 + "/metrics.jsonl", "loss")[0] ==
        doctest::Approx(metric(in_bf16 + "/metrics.jsonl", "loss")[0]).epsilon(0.05));
  const std::string from_run = m.work.path("from-run");
  const Result again =
      run("train_gpt", m.small + "--init-from " + m.run_folder + " --steps 1 --warmup-steps 0 --out " + from_run);
  INFO(again.output);
  REQUIRE(again.code == 0);
  CHECK(metric(from_run + "/metrics.jsonl", "loss")[0] == doctest::Approx(losses[0][0]).epsilon(1e-6));
}

TEST_CASE("a run that resumes no longer needs the folder of --init-from, and ends with the same weights") {
  const Models m;
  const std::string flags = m.small + "--init-from " + m.model + " --checkpoint-every 2 ";
  const auto trained = [&](const std::string& more) {
    const Result result = run("train_gpt", flags + more);
    CHECK_MESSAGE(result.code == 0, result.output);
    return result.output;
  };
  trained("--steps 4 --lr-schedule constant --out " + m.work.path("whole"));
  trained("--steps 2 --lr-schedule constant --out " + m.work.path("half"));
  fs::rename(m.model, m.model + "-gone");
  const std::string more = "--steps 4 --lr-schedule constant --export-hf on ";
  const std::string said = trained(more + "--resume auto --out " + m.work.path("half"));
  CHECK(contains(said, "resuming after step 2"));
  CHECK(contains(said, m.model + ", which is not read again: " + m.work.path("half/checkpoints/step_00000002")));
  trained(more + "--mesh tp=2 --resume " + m.work.path("whole/checkpoints/step_00000002") + " --out " +
          m.work.path("other"));
  for (const char* out : {"half", "other"})
    CHECK(metric(m.work.path(out) + "/metrics.jsonl", "loss").back() ==
          doctest::Approx(metric(m.work.path("whole/metrics.jsonl"), "loss").back()).epsilon(1e-6));
  CHECK(m.text(m.work.path("half/checkpoints/step_00000004/hf")) == m.text(m.work.path("whole")));
  check_refused(run("train_gpt", flags + "--kv-heads 2 --resume auto --out " + m.work.path("half")), 64,
                {"--kv-heads 2 (there: 1)"});
  // Without a checkpoint there is nothing to begin with.
  check_refused(run("train_gpt", flags + "--resume auto --out " + m.work.path("new")), 64, {m.model});
}

TEST_CASE("a folder of adapters is read beside its model by every program") {
  const Models m;
  const std::string tuned = m.work.path("tuned"), adapter = m.work.path("adapter"), merged = m.work.path("merged");
  const std::string from = m.small + "--init-from " + m.model + " --warmup-steps 0 --log-every 1 ";
  const Result trained =
      run("train_gpt", from + "--lora-rank 2 --lora-targets '*.attn.q,*.mlp.*' --lr 0.1 --steps 4 --out " + tuned);
  REQUIRE_MESSAGE(trained.code == 0, trained.output);
  REQUIRE(run("convert", "peft " + tuned + " " + adapter).code == 0);
  const Result joined = run("convert", "hf " + m.model + " " + merged + " --adapter " + adapter);
  CHECK_MESSAGE(joined.code == 0, joined.output);
  CHECK(contains(joined.output, "wrote " + merged + ": a llama of "));
  REQUIRE(run("convert", "gguf " + m.run_folder + " " + merged + ".gguf --adapter " + adapter).code == 0);
  CHECK(m.text(tuned) != m.text(m.model));
  for (const std::string& model :
       {m.model + " --adapter " + adapter, m.run_folder + " --adapter " + adapter, merged, merged + ".gguf"})
    CHECK(m.text(model) == m.text(tuned));

  // Training goes on with the loss that the run's next step has.
  const std::string more = m.work.path("more");
  const Result next = run("train_gpt", from + "--init-adapter " + adapter + " --mesh dp=2 --steps 1 --out " + more);
  REQUIRE_MESSAGE(next.code == 0, next.output);
  CHECK(contains(next.output, "adapters of " + adapter));
  const std::string again = m.work.path("again");
  REQUIRE(run("train_gpt", from + "--steps 1 --out " + again + " --init-from " + merged).code == 0);
  CHECK(metric(more + "/metrics.jsonl", "loss")[0] ==
        doctest::Approx(metric(again + "/metrics.jsonl", "loss")[0]).epsilon(1e-5));

  check_refused(run("train_gpt", from + "--init-adapter " + adapter + " --lora-rank 3"), 64,
                {"--lora-rank 3 (there: 2)", "drop these flags, or --init-adapter"});
  check_refused(run("train_gpt", m.small + "--init-adapter " + adapter), 64, {"--init-adapter has no effect"});
  check_refused(run("train_gpt", from + "--init-adapter " + m.model), 64, {"has no adapter_config.json"});
  for (const std::string& command : {"--init-from " + adapter, "--init-from " + adapter + " --init-adapter " + adapter})
    check_refused(run("train_gpt", m.small + command), 64, {"holds adapters, and not the model", "give its path"});
  check_refused(run("eval", "--checkpoint " + adapter + " --data " + m.work.path("text.txt") + " --mesh dp=2"), 64,
                {"holds adapters, and not the model"});
  check_refused(run("convert", "peft " + tuned + " x --adapter " + adapter), 64,
                {"is for hf and gguf", "drop --adapter"});
  check_refused(run("eval", "--checkpoint " + tuned + " --adapter " + adapter + " --data " + m.work.path("text")), 64,
                {"has adapters itself, of rank 2"});
  write_plainly(adapter + "/adapter_config.json",
                "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 16, \"use_dora\": true}");
  check_refused(run("convert", "hf " + m.model + " " + m.work.path("x") + " --adapter " + adapter), 65,
                {"use_dora is true"});
  CHECK_FALSE(fs::exists(m.work.path("x")));
}

TEST_CASE("flags that contradict the folder are refused with their names") {
  const Models m;
  const std::string flags = m.small + "--init-from " + m.model + " ";
  check_refused(run("train_gpt", flags + "--activation gelu --kv-heads 2"), 64,
                {"--activation gelu (there: swiglu)", "--kv-heads 2 (there: 1)", "drop these flags, or --init-from"});
  check_refused(run("train_gpt", flags + "--model gpt2-124m"), 64, {"are two models"});
  check_refused(run("train_gpt", m.small + "--init-from " + m.work.path("none")), 64, {m.work.path("none")});
  check_refused(run("train_gpt", m.small + "--export-hf on --out none"), 64, {"there are no checkpoints"});
  check_refused(run("train_gpt", m.small + "--lora-rank 400"), 64,
                {"--lora-rank 400 is more than the rank of any layer"});
  check_refused(run("train_gpt", m.small + "--lora-rank 2 --freeze wte.weight"), 64,
                {"[--freeze] 'wte.weight' matches only parameters that are not trained anyway"});
  check_refused(run("train_gpt", m.small + "--export-hf on --logit-softcap 3 --out " + m.work.path("x")), 64,
                {"--logit-softcap 3", "do not export"});
  CHECK_FALSE(fs::exists(m.work.path("x")));
}

TEST_CASE("damaged folders are bad data for every program") {
  const Models m;
  const std::string weights = m.model + "/model.safetensors", whole = content_of(weights);
  write_plainly(weights, whole.substr(0, whole.size() / 2));
  const auto refused = [&](const std::vector<std::string>& parts) {
    check_refused(run("train_gpt", m.small + "--init-from " + m.model), 65, parts);
    const Result generated = run("generate", "--checkpoint " + m.model + " --prompt A");
    CHECK(generated.code == 65);
    for (const std::string& part : parts) CHECK(contains(generated.output, part));
    CHECK(run("convert", "hf " + m.model + " " + m.work.path("new")).code == 65);
    CHECK_FALSE(fs::exists(m.work.path("new")));
  };
  refused({"model.safetensors"});
  write_plainly(weights, whole);
  const std::string config = content_of(m.model + "/config.json");
  write_plainly(m.model + "/config.json", "{\"clip_qkv\": 8," + config.substr(config.find('{') + 1));
  refused({"\"clip_qkv\" is 8"});
  write_plainly(m.model + "/config.json", config);
  write_plainly(m.model + "/tokenizer.json", "{");
  refused({"tokenizer.json"});
}

TEST_CASE("chat template, end tokens and context go with a model through runs, folders and GGUF files") {
  const Workplace work;
  std::ofstream(work.folder / "d.jsonl")
      << "{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"c\", \"answer\": \"d\"}\n";
  std::ofstream(work.folder / "chat.in") << "a\nc\n";
  const std::string flags = "--data " + work.path("d.jsonl") +
                            " --chat-template chatml --val-fraction 0 --micro-batch 1 --steps 1 --lr 1e-3 ";
  const Result trained =
      run("train_gpt", flags +
                           "--tokenizer byte --layers 1 --heads 2 --width 16 --context 96 --norm rms --positions rope "
                           "--bias off --activation swiglu --tied off --out " +
                           work.path("run"));
  REQUIRE_MESSAGE(trained.code == 0, trained.output);
  REQUIRE(run("convert", "hf " + work.path("run") + " " + work.path("folder")).code == 0);
  REQUIRE(run("convert", "gguf " + work.path("run") + " " + work.path("model.gguf")).code == 0);
  REQUIRE(run("convert", "hf " + work.path("model.gguf") + " " + work.path("again")).code == 0);
  REQUIRE(run("convert", "gguf " + work.path("model.gguf") + " " + work.path("run2")).code == 0);
  const auto chat = [&](const std::string& model) {
    const Result result =
        run("generate", "--checkpoint " + work.path(model) + " --chat --temperature 0 --length 12 < " +
                            work.path("chat.in") + " 2>/dev/null");
    CHECK_MESSAGE(result.code == 0, model);
    return result.output;
  };
  const std::string said = chat("run");
  for (const char* model : {"folder", "model.gguf", "again", "run2"}) CHECK(chat(model) == said);
  check_refused(run("train_gpt", "--data " + work.path("d.jsonl") + " --out none"), 64,
                {"d.jsonl holds JSON lines", "--chat-template", "prepare_data"});
  // Of several templates in a list, that of the name default; and a run is written in another dtype.
  std::ofstream(work.folder / "folder" / "tokenizer_config.json")
      << "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": "
         "\"{% for m in messages %}{{ m.content }}{% endfor %}\"}]}";
  fs::remove(work.folder / "folder" / "chat_template.jinja");
  REQUIRE(run("convert", "hf " + work.path("folder") + " " + work.path("run3")).code == 0);
  REQUIRE(run("convert", "hf " + work.path("run3") + " " + work.path("half") + " --dtype bf16").code == 0);
  CHECK(content_of(work.path("half/chat_template.jinja")) == "{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(contains(content_of(work.path("half/config.json")), "bfloat16"));
  REQUIRE(run("convert", "hf " + work.path("run") + " " + work.path("folder2")).code == 0);
  // Training in shorter sequences does not make the model shorter.
  const Result shorter = run("train_gpt", flags + "--init-from " + work.path("folder2") +
                                              " --context 80 --export-hf on --out " + work.path("short"));
  REQUIRE_MESSAGE(shorter.code == 0, shorter.output);
  REQUIRE(run("convert", "hf " + work.path("short") + " " + work.path("from-short")).code == 0);
  for (const char* config : {"short/checkpoints/step_00000001/hf/config.json", "from-short/config.json"})
    CHECK(contains(content_of(work.path(config)), "\"max_position_embeddings\": 96"));
}

TEST_CASE("a conversion to a run that was killed can be made again") {
  const Models m;
  const fs::path to = m.work.path("killed");
  fs::create_directories(to / "checkpoints" / "step_00000000.tmp.0123456789abcdef");
  const std::string command = "hf " + m.model + " " + to.string();
  std::ofstream(to / "notes.txt") << "mine";
  check_refused(run("convert", command), 64, {"exists and is not empty"});
  fs::remove(to / "notes.txt");
  const Result again = run("convert", command);
  CHECK_MESSAGE(again.code == 0, again.output);
}

TEST_CASE("a tokenizer whose ids are others than those of the model is warned of") {
  const Workplace work;
  const auto train = [&](const std::string& letters, const std::string& flags) {
    std::string text;
    for (int i = 0; i < 200; ++i) text += letters;
    write_plainly(work.path(letters), text);
    const Result result = run("train_gpt", "--data " + work.path(letters) +
                                               " --layers 1 --heads 2 --width 16 --context 16 --micro-batch 1 --steps "
                                               "1 --eval-batches 1 --tokenizer char " +
                                               flags);
    REQUIRE_MESSAGE(result.code == 0, result.output);
    return result.output;
  };
  train("abcd", "--out " + work.path("run"));
  const std::string begin = "--out none --init-from " + work.path("run");
  CHECK(contains(train("abce", begin),
                 "it is not the tokenizer of " + work.path("run") + ": id 3 is \"e\" and not \"d\""));
  CHECK_FALSE(contains(train("abcd", begin), "warning: it is not the tokenizer"));
}

TEST_CASE("the token that ends a turn goes out with every export; a model's template is that of its fine-tuning") {
  const Workplace work;
  const auto goldens = nlohmann::json::parse(content_of("tests/golden/tokenizers.json"));
  for (const auto& entry : goldens["hugging_face"])
    if (entry["name"] == "qwen2") std::ofstream(work.folder / "qwen2.json") << entry["tokenizer"].dump();
  std::ofstream(work.folder / "d.jsonl")
      << "{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"c\", \"answer\": \"d\"}\n";
  const std::string data = "--data " + work.path("d.jsonl") + " --val-fraction 0 --micro-batch 1 --lr 1e-3 ";
  const auto train = [&](const std::string& flags) { return run("train_gpt", data + flags); };
  const Result base = train(
      "--steps 1 --chat-template chatml --layers 1 --heads 2 --width 16 --context 64 --norm rms --positions rope "
      "--bias off --activation swiglu --tied off --tokenizer bpe:" +
      work.path("qwen2.json") + " --out " + work.path("run"));
  REQUIRE_MESSAGE(base.code == 0, base.output);
  REQUIRE(run("convert", "hf " + work.path("run") + " " + work.path("folder")).code == 0);
  REQUIRE(run("convert", "gguf " + work.path("run") + " " + work.path("model.gguf")).code == 0);
  REQUIRE(run("convert", "hf " + work.path("model.gguf") + " " + work.path("again")).code == 0);
  const auto ends = [&](const std::string& folder) {
    return nlohmann::json::parse(content_of(work.path(folder + "/generation_config.json")))["eos_token_id"];
  };
  const auto tokenizer = make_tokenizer("bpe:" + work.path("qwen2.json"), {});
  const std::vector<std::int32_t> expected = {tokenizer->encode_with_special("<|endoftext|>").back(),
                                              tokenizer->encode_with_special("<|im_end|>").back()};
  CHECK(ends("folder") == nlohmann::json(expected));
  CHECK(ends("again") == nlohmann::json(expected));

  const std::string from = "--init-from " + work.path("folder") + " --context 64 ", out = "--out " + work.path("tuned");
  const Result tuned = train(from + "--steps 1 --checkpoint-every 1 --export-hf on " + out);
  REQUIRE_MESSAGE(tuned.code == 0, tuned.output);
  CHECK(ends("tuned/checkpoints/step_00000001/hf") == nlohmann::json(expected));
  check_refused(train("--steps 2 --context 64 --chat-template chatml --resume auto " + out), 64,
                {"began with --init-from", "add --init-from"});
  check_refused(train(from + "--steps 1 --packing best-fit --out none"), 64, {"--packing"});
  std::ofstream(work.folder / "one.jsonl") << "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
  check_refused(run("train_gpt", "--data " + work.path("one.jsonl") + " --chat-template chatml --out none"), 64,
                {"has 1 dialogue", "--val-fraction 0.1 leaves none", "--val-fraction 0"});
  REQUIRE(run("train_gpt", data +
                               "--steps 1 --chat-template chatml --tokenizer byte --layers 1 --heads 2 --width 16 "
                               "--context 64 --norm rms --positions rope --bias off --activation swiglu --out " +
                               work.path("bytes"))
              .code == 0);
  REQUIRE(run("convert", "hf " + work.path("bytes") + " " + work.path("bytes-hf")).code == 0);
  check_refused(
      run("convert", "hf " + work.path("run") + " " + work.path("no") + " --texts-from " + work.path("bytes-hf")), 64,
      {"has 256 tokens", "change --texts-from"});
}

}  // namespace hugging_face_cli_test
