// Every published architecture on every axis of the mesh, as a user has it: a folder in Hugging Face's layout with
// random weights is trained, resumed on another mesh, and exported; all is compared with one rank.
// Slow: part of `./trireme test --all` only. Read next: tests/cli/hugging_face_test.cpp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <map>

#include "models/gpt.h"
#include "models/hugging_face/export.h"
#include "nn/weights.h"
#include "tests/cli/support.h"
#include "tests/support/elements.h"
#include "tests/support/mesh.h"
#include "train/gpt/gpt_source.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace architectures_matrix_test {
namespace {

constexpr double most = 1e-5;  // relative, per loss and per tensor, as build/bin/parity
constexpr int steps = 4;

struct Kind {
  std::string type;  ///< in config.json
  GptConfig config;
  bool in_gguf = true;
};

GptConfig llama() {
  GptConfig c = {.layers = 2, .heads = 4, .width = 32, .context = 32, .vocab = 259, .bias = false};  // odd: padding
  c.activation = Activation::swiglu;
  c.kv_heads = 2;
  c.ffn_width = 48;
  c.norm = Norm::rms;
  c.positions = PositionEncoding::rope;
  c.tied = false;
  return c;
}

GptConfig gemma() {
  GptConfig c = llama();
  c.activation = Activation::geglu;
  c.tied = c.zero_centred_norms = c.scaled_embeddings = true;
  c.head_width = 12;
  return c;
}

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  const auto add = [&](const char* type, const GptConfig& config, const std::function<void(GptConfig&)>& change) {
    all.push_back({type, config});
    change(all.back().config);
  };
  add("gpt2", {.layers = 2, .heads = 4, .width = 32, .context = 32, .vocab = 259},
      [](GptConfig& c) { c.activation = Activation::gelu_tanh; });
  add("llama", llama(), [](GptConfig& c) { c.rope_scaling = "llama3:8,16,1,4"; });
  add("mistral", llama(), [](GptConfig& c) { c.window = 7; });
  all.back().in_gguf = false;  // llama.cpp has no window there
  add("qwen2", llama(), [](GptConfig& c) { c.qkv_bias = c.tied = true; });
  add("qwen3", llama(), [](GptConfig& c) { c.qk_norm = true, c.head_width = 12; });
  const nn::ExpertsOptions four = {.count = 4, .top_k = 2, .norm = nn::RouterNorm::after};
  add("mixtral", llama(), [&](GptConfig& c) { c.experts = four; });
  add("qwen3_moe", llama(), [&](GptConfig& c) {
    c.qk_norm = true;
    c.experts = four;
    c.expert_ffn_width = 24;
  });
  add("gemma", gemma(), [](GptConfig&) {});
  add("gemma2", gemma(), [](GptConfig& c) {
    c.post_norms = true;
    c.query_pre_attn_scalar = 12;
    c.attention_softcap = 50;
    c.logit_softcap = 30;
    c.window = 7;
    c.full_every = 2;
  });
  add("gemma3_text", gemma(), [](GptConfig& c) {
    c.layers = 6;
    c.post_norms = c.qk_norm = true;
    c.rope_base = 1e6;
    c.window_rope_base = 1e4;
    c.window = 7;
    c.full_every = 6;
  });
  return all;
}

/// Where a run trains, and where it is resumed.
struct Axes {
  std::string name, trained, resumed;
  bool experts_only = false;
};

const std::vector<Axes> all_axes = {
    {"dp", "--mesh dp=2 --micro-batch 2", "--mesh tp=2 --micro-batch 2"},
    {"tp", "--mesh tp=2 --micro-batch 4", "--mesh pp=2 --micro-batch 1"},
    {"pp", "--mesh pp=2 --micro-batch 1", "--mesh cp=2 --micro-batch 4"},
    {"cp", "--mesh cp=2 --micro-batch 2", "--mesh dp=2 --zero 3 --micro-batch 2"},
    {"zero3", "--mesh dp=2 --zero 3 --zero-resident 0 --micro-batch 1", "--mesh dp=1 --micro-batch 4"},
    {"ep", "--mesh dp=2,ep=2 --micro-batch 2", "--mesh dp=1 --micro-batch 2", true},
    {"ep-zero3", "--mesh dp=4,ep=2 --zero 3 --zero-resident 0 --micro-batch 1", "--mesh tp=2 --micro-batch 4", true},
    {"several", "--mesh dp=2,tp=2,pp=2 --zero 3 --zero-resident 0 --micro-batch 1", "--mesh tp=2,cp=2 --micro-batch 2"},
};

using Weights = std::map<std::string, Tensor>;

/// The weights of a run, a folder or a GGUF file, as one rank reads them.
Weights weights_of(const std::string& path) {
  const std::shared_ptr<ProcessGroup> alone = self_group();
  GptSource source(*alone, path);
  const auto mesh = std::make_shared<const DeviceMesh>(alone, MeshShape{});
  Gpt model(nn::Build(mesh, source.dtype(), 0), source.config());
  source.load(model);
  Weights weights;
  for (const ParameterPtr& p : model.parameters())
    weights[p->name] = clone(view::slice(p->local, 0, 0, p->logical_rows));
  return weights;
}

void check_same(const Weights& got, const Weights& expected, const std::string& what) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CHECK(got.at(name).dtype() == tensor.dtype());
    CHECK_MESSAGE(values(got.at(name)) == values(tensor), what, ": ", name);
  }
}

void check_close(const Weights& got, const Weights& expected, const std::string& what) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    const double off = relative_difference(got.at(name), tensor);
    CHECK_MESSAGE(off <= most, what, ": ", name, " is off by ", off);
  }
}

/// Each rounded to `dtype`, after change() if given.
Weights rounded(const Weights& weights, DType dtype,
                const std::function<Tensor(const std::string&, const Tensor&)>& change = {}) {
  const NoGrad guard;
  Weights result;
  for (const auto& [name, tensor] : weights) result[name] = cast(change ? change(name, tensor) : tensor, dtype);
  return result;
}

/// A model of one kind, in a folder, and its run on one rank.
class Case {
 public:
  explicit Case(const Kind& kind) : kind_(kind) {
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      Gpt model(nn::Build(mesh, DType::f32, 3), kind.config);
      randomise(model.parameters(), 0.1);  // also what begins as ones or zeros
      hugging_face::write_folder(work_.path("model"), {.config = kind.config}, nn::detail::held_weights(model).tensors,
                                 mesh->world());
    });
    CHECK(hugging_face::read_config(work_.path("model")).model_type == kind.type);
    train("one", "--mesh dp=1 --micro-batch 4");
    losses_ = metric(work_.path("one/metrics.jsonl"), "loss");
    REQUIRE(losses_.size() == steps);
    CHECK(losses_.back() < losses_.front());
    weights_ = weights_of(work_.path("one"));
  }

  void check(const Axes& axes) const {
    INFO(kind_.type, ", ", axes.name);
    const std::string first = "first-" + axes.name, second = "second-" + axes.name;
    train(first, axes.trained + " --export-hf on");
    check_losses(first, 0);
    const Weights trained = weights_of(work_.path(first));
    check_close(trained, weights_, "trained");
    check_same(weights_of(work_.path(first + "/checkpoints/step_00000004/hf")), trained, "exported");

    train(second, axes.resumed + " --export-hf on --resume " + work_.path(first) + "/checkpoints/step_00000002");
    check_losses(second, 2);
    const Weights resumed = weights_of(work_.path(second));
    check_close(resumed, trained, "resumed");
    check_same(weights_of(work_.path(second + "/checkpoints/step_00000004/hf")), resumed, "exported after resuming");
  }

  /// The run of one rank, converted by the program.
  void check_converted() const {
    INFO(kind_.type);
    convert("hf", "half", "--dtype bf16");
    check_same(weights_of(work_.path("half")), rounded(weights_, DType::bf16), "in bf16");
    if (!kind_.in_gguf)
      return check_refused(run("convert", fmt::format("gguf {0}/one {0}/one.gguf", work_.folder.string())), 64,
                           {"--window 7"});
    const auto stored = [this](const std::string& name, const Tensor& weight) {  // GGUF has 1 + weight
      return kind_.config.zero_centred_norms && name.find("norm") != std::string::npos ? (weight + 1.0) + -1.0 : weight;
    };
    convert("gguf", "one.gguf", "");
    check_same(weights_of(work_.path("one.gguf")), rounded(weights_, DType::f32, stored), "in GGUF");
    convert("gguf", "half.gguf", "--dtype f16");
    const auto stored_half = [&](const std::string& name, const Tensor& half) {  // rounded first; norms are in f32
      return stored(name, cast(half, DType::f32));
    };
    check_same(weights_of(work_.path("half.gguf")), rounded(rounded(weights_, DType::f16), DType::f16, stored_half),
               "in GGUF, f16");
  }

 private:
  /// Converts the run of one rank.
  void convert(const std::string& format, const std::string& to, const std::string& flags) const {
    const Result result =
        run("convert", fmt::format("{0} {1}/one {1}/{2} {3}", format, work_.folder.string(), to, flags));
    CHECK_MESSAGE(result.code == 0, result.output);
  }
  void train(const std::string& out, const std::string& flags) const {
    const Result result =
        run("train_gpt", fmt::format("--init-from {0}/model --data {0}/text.txt --tokenizer byte --val-fraction 0 "
                                     "--context 32 --global-batch 4 --steps {1} --checkpoint-every 2 --log-every 1 "
                                     "--lr 1e-2 --warmup-steps 0 --eps 1e-3 --threads 1 {4}--out {0}/{2} {3}",
                                     work_.folder.string(), steps, out, flags, patient));
    REQUIRE_MESSAGE(result.code == 0, result.output);
  }
  void check_losses(const std::string& out, std::size_t first) const {
    const std::vector<double> losses = metric(work_.path(out + "/metrics.jsonl"), "loss");
    REQUIRE(losses.size() == losses_.size() - first);
    for (std::size_t i = 0; i < losses.size(); ++i)
      CHECK(losses[i] == doctest::Approx(losses_[first + i]).epsilon(most));
  }

  Workplace work_;
  Kind kind_;
  std::vector<double> losses_;
  Weights weights_;
};

}  // namespace

TEST_CASE("every architecture trains, resumes and exports on every axis as on one rank") {
  for (const Kind& kind : kinds()) {
    const Case made(kind);
    for (const Axes& axes : all_axes)
      if (!axes.experts_only || kind.config.experts.count > 0) made.check(axes);
    made.check_converted();
  }
}

}  // namespace architectures_matrix_test
