// The GPT against PyTorch: logits, loss, every gradient and ten AdamW steps of the models in this folder, on one rank
// and on meshes. README.md says what the files hold.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "data/safetensors.h"
#include "models/gpt.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/data_parallel/gradient_norm.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

const std::vector<std::string> files = {"gpt2_gelu", "gpt2_gelu_tanh", "gpt2_gelu_nobias"};

class Golden {
 public:
  explicit Golden(const std::string& name) : file_("tests/golden/" + name + ".safetensors") {}

  GptConfig config() const {
    return {.layers = integer("layers"),
            .heads = integer("heads"),
            .width = integer("width"),
            .context = integer("context"),
            .vocab = integer("vocab"),
            .dropout = 0,
            .bias = text("bias") == "on",
            .activation = text("activation") == "gelu" ? Activation::gelu : Activation::gelu_tanh};
  }
  optim::AdamWConfig adamw() const {
    return {.beta1 = number("beta1"),
            .beta2 = number("beta2"),
            .eps = number("eps"),
            .weight_decay = number("weight_decay")};
  }
  double number(const std::string& key) const { return std::stod(text(key)); }
  Tensor tensor(const std::string& name) const { return file_.read(name); }
  std::vector<std::string> names() const { return file_.names(); }

 private:
  const std::string& text(const std::string& key) const { return file_.metadata().at(key); }
  std::int64_t integer(const std::string& key) const { return std::stoll(text(key)); }
  SafetensorsFile file_;
};

std::int64_t valid(const Tensor& targets) {
  const auto values = contiguous(targets).span<std::int32_t>();
  return std::count_if(values.begin(), values.end(), [](std::int32_t t) { return t >= 0; });
}

/// This rank's part of a golden model, with its weights.
std::unique_ptr<Gpt> make_model(const Golden& golden, const MeshPtr& mesh, DType dtype, const GptConfig& config) {
  auto model = std::make_unique<Gpt>(nn::Build(mesh, dtype, 1), config);
  for (const ParameterPtr& p : model->parameters()) set_whole(*p, golden.tensor("weights." + p->name));
  return model;
}

bool is_qkv_bias(const std::string& name) { return name.ends_with("qkv.bias"); }
Tensor without_keys(const Tensor& qkv_bias) {  // [3, D] -> [2, D]
  return concat({view::slice(qkv_bias, 0, 0, 1), view::slice(qkv_bias, 0, 2, 1)}, 0);
}
double largest(const Tensor& x) {
  double most = 0;
  for (const double v : contiguous(cast(x, DType::f64)).span<double>()) keep_largest(most, std::abs(v));
  return most;
}

/// Compares relatively, except for the key bias. Its gradient is zero in exact arithmetic, so its elements must be
/// below `zero`.
void check_gradient(const std::string& name, const Tensor& got, const Tensor& expected, double tolerance, double zero) {
  if (!is_qkv_bias(name)) {
    CHECK_MESSAGE(relative_difference(got, expected) < tolerance, "gradient of ", name);
    return;
  }
  CHECK_MESSAGE(relative_difference(without_keys(got), without_keys(expected)) < tolerance, "gradient of ", name);
  CHECK_MESSAGE(largest(view::slice(got, 0, 1, 1)) < zero, "gradient of the key rows of ", name);
}

struct Pass {
  double loss = 0;
  Tensor logits;  // [B, T, V] on the last stage
};

/// Forward and backward of one batch over the stages of the mesh; the batch's loss on every rank.
Pass run_batch(Gpt& model, const MeshPtr& mesh, const Tensor& ids, const Tensor& targets) {
  Pass pass;
  pipeline::Executor executor(pipeline::make_schedule("1f1b", mesh->size(Axis::pp), 1), mesh->group(Axis::pp));
  const auto forward = [&](int stage, const Tensor& input, int) {
    const Batch batch = token_batch(ids, targets, {0});
    const Tensor hidden = model.hidden(stage, input, batch);  // [B, T, D]
    if (!mesh->is_last(Axis::pp)) return hidden;
    pass.logits = model.gathered_logits(hidden).detach();
    return model.loss(hidden, batch, 1.0 / static_cast<double>(valid(targets)));
  };
  const Tensor loss = executor.run({forward, {ids.size(0), ids.size(1), model.config().width}, model.dtype()}).loss;
  pass.loss = pipeline::global_loss(*mesh, loss);
  return pass;
}

}  // namespace

TEST_CASE("in f64, logits, loss and every gradient are PyTorch's, on one rank and on two") {
  for (const std::string& file : files) {
    const Golden golden(file);
    for (const std::string& text : Meshes{"tp=1", "tp=2"}) {
      CAPTURE(file);
      run_mesh(text, [&](const MeshPtr& mesh) {
        const auto model = make_model(golden, mesh, DType::f64, golden.config());
        const Tensor targets = golden.tensor("targets");
        const Batch batch = token_batch(golden.tensor("ids"), targets, {0});
        const Tensor hidden = model->hidden(0, {}, batch);
        const Tensor local = model->logits(hidden).detach();  // [B, T, V/tp]
        const Tensor logits = view::slice(tp_whole(local, placement::S(2), *mesh), 2, 0, golden.config().vocab);
        CHECK(relative_difference(logits, golden.tensor("logits")) < 1e-13);
        const Tensor loss = model->loss(hidden, batch, 1.0 / static_cast<double>(valid(targets)));
        CHECK(loss.item() == doctest::Approx(golden.tensor("loss").item()).epsilon(1e-13));
        backward(loss);
        for (const ParameterPtr& p : model->parameters()) {
          check_gradient(p->name, whole(p->grad(), *p, *mesh), golden.tensor("grads." + p->name), 1e-12, 1e-15);
        }
      });
    }
  }
}

TEST_CASE("in f32, logits, loss and every gradient are PyTorch's on every mesh") {
  for (const std::string& file : files) {
    const Golden golden(file);
    for (const std::string& text : Meshes{"tp=1", "tp=2", "pp=2", "tp=2,pp=2"}) {
      CAPTURE(file);
      CAPTURE(text);
      std::mutex mutex;
      std::set<std::string> seen;
      run_mesh(text, [&](const MeshPtr& mesh) {
        const auto model = make_model(golden, mesh, DType::f32, golden.config());
        GradSync sync(model->parameters(), *mesh);
        const Pass pass = run_batch(*model, mesh, golden.tensor("ids"), golden.tensor("targets"));
        sync.finish();
        CHECK(pass.loss == doctest::Approx(golden.tensor("loss").item()).epsilon(1e-5));
        if (pass.logits.defined()) CHECK(relative_difference(pass.logits, golden.tensor("logits")) < 1e-5);
        for (const ParameterPtr& p : model->parameters()) {
          check_gradient(p->name, whole(p->grad(), *p, *mesh), golden.tensor("grads." + p->name), 1e-5, 1e-7);
          const std::scoped_lock lock(mutex);
          seen.insert("grads." + p->name);
        }
      });
      for (const std::string& name : golden.names())
        CHECK_MESSAGE((!name.starts_with("grads.") || seen.contains(name)), name, " belongs to no parameter");
    }
  }
}

TEST_CASE("ten AdamW steps have PyTorch's losses, gradient norms and final weights, on every mesh") {
  for (const std::string& file : files) {
    const Golden golden(file);
    const Tensor losses = golden.tensor("steps.loss"), norms = golden.tensor("steps.grad_norm");
    const Tensor ids = golden.tensor("steps.ids"), targets = golden.tensor("steps.targets");  // [10, B, T]
    for (const std::string& text : Meshes{"tp=1", "tp=2", "pp=2"}) {
      CAPTURE(file);
      run_mesh(text, [&](const MeshPtr& mesh) {
        const auto model = make_model(golden, mesh, DType::f32, golden.config());
        GradSync sync(model->parameters(), *mesh);
        const auto optimizer = optim::make_adamw(model->parameters(), golden.adamw());
        for (std::int64_t step = 0; step < losses.count(); ++step) {
          sync.zero_grad();
          const Pass pass = run_batch(*model, mesh, view::select(ids, 0, step), view::select(targets, 0, step));
          sync.finish();
          const double norm = gradient_norm(model->parameters(), *mesh);
          CHECK_MESSAGE(pass.loss == doctest::Approx(losses.data<double>()[step]).epsilon(1e-5), text,
                        ": loss of step ", step);
          CHECK_MESSAGE(norm == doctest::Approx(norms.data<double>()[step]).epsilon(1e-5), text, ": norm of step ",
                        step);
          optimizer->step(golden.number("lr"), clip_factor(norm, golden.number("clip")));
        }
        for (const ParameterPtr& p : model->parameters()) {
          Tensor got = whole(p->local, *p, *mesh), expected = golden.tensor("final." + p->name);
          if (is_qkv_bias(p->name)) got = without_keys(got), expected = without_keys(expected);
          CHECK_MESSAGE(relative_difference(got, expected) < 1e-5, text, ": final ", p->name);
        }
      });
    }
  }
}

TEST_CASE("the two forms of gelu are told apart, and so are weights in the wrong order") {
  for (const std::string& file : {files[0], files[1]}) {
    const Golden golden(file);
    run_mesh("tp=1", [&](const MeshPtr& mesh) {
      GptConfig other = golden.config();
      other.activation = other.activation == Activation::gelu ? Activation::gelu_tanh : Activation::gelu;
      const auto model = make_model(golden, mesh, DType::f32, other);
      const Tensor logits =
          model->gathered_logits(model->hidden(0, {}, token_batch(golden.tensor("ids"), {}, {0}))).detach();
      CHECK(relative_difference(logits, golden.tensor("logits")) > 5e-5);
    });
    run_mesh("tp=1", [&](const MeshPtr& mesh) {
      const auto model = make_model(golden, mesh, DType::f32, golden.config());
      for (const ParameterPtr& p : model->parameters()) {
        if (p->name != "blocks.0.attn.proj.weight") continue;
        set_whole(*p, clone(view::transpose(golden.tensor("weights." + p->name), 0, 1)));
      }
      const Tensor logits =
          model->gathered_logits(model->hidden(0, {}, token_batch(golden.tensor("ids"), {}, {0}))).detach();
      CHECK(relative_difference(logits, golden.tensor("logits")) > 1e-2);
    });
  }
}
