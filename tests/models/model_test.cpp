// A model that reads no text, in the same Trainer as a GPT. Every mesh, schedule and ZeRO stage computes what one rank
// computes, and any mesh resumes what another has saved.
#include "models/model.h"

#include <cmath>

#include "check/parity/parity.h"
#include "data/dataset.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/mesh.h"
#include "train/gpt/gpt_source.h"
#include "train/runs/saved_run.h"
#include "train/step/setup.h"
#include "train/step/trainer.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr std::int64_t pixels = 12, width = 8, classes = 5, layers = 5, global_batch = 12;

struct Embed : nn::Module {
  nn::Linear in;
  explicit Embed(const nn::Build& b) : Module(b), in(b / "in", pixels, {width}, nn::Split::none, {}) {}
  Tensor forward(const Tensor& x) override { return in(x); }  // [B, 1, P] -> [B, 1, D]
};

struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Mlp mlp;
  explicit Block(const nn::Build& b)
      : Module(b), norm(b / "norm", width), mlp(b / "mlp", {.width = width, .hidden = 4 * width}) {}
  Tensor forward(const Tensor& x) override { return mlp.forward_add(x, norm(x)); }  // [B, 1, D] -> [B, 1, D]
};

struct Head : nn::Module {
  nn::LayerNorm norm;
  nn::Linear out;
  explicit Head(const nn::Build& b)
      : Module(b), norm(b / "norm", width), out(b / "out", width, {classes}, nn::Split::none, {}) {}
  Tensor forward(const Tensor& x) override { return out(norm(x)); }  // [B, 1, D] -> [B, 1, C]
};

/// What distinguishes classifiers of the same sizes, and a model with another architecture.
struct Labels {
  int age = 1;
  std::string architecture = "classifier";
};

/// Classifies images of a few pixels.
class Classifier : public Model {
 public:
  Classifier(const nn::Build& b, pipeline::StagePlan plan, Labels labels = {})
      : Model(b, std::move(plan)), labels_(std::move(labels)) {
    if (holds_front()) embed_ = std::make_unique<Embed>(front_unit("embed"));
    make_blocks([](const nn::Build& block, int) { return std::make_unique<Block>(block); });
    if (holds_end()) head_ = std::make_unique<Head>(end_unit("head"));
  }
  Tensor front(const Batch& batch) override { return (*embed_)(batch["images"]); }
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override {
    return nn::cross_entropy((*head_)(hidden), batch["labels"],
                             {.slice = {0, classes}, .smoothing = 0, .scale = scale});
  }
  Shape hidden_shape(std::int64_t samples) const override { return {samples, 1, width}; }
  std::string architecture() const override { return labels_.architecture; }
  std::string configuration() const override {
    return fmt::format(R"({{"image_age": {}, "grey": true}})", labels_.age);
  }

 private:
  Labels labels_;
  std::unique_ptr<Embed> embed_;
  std::unique_ptr<Head> head_;
};

/// Random images. The numbers are chosen so that the loss falls within four steps.
std::shared_ptr<const Dataset> some_images() {
  constexpr std::int64_t count = 50;
  const Tensor images = Tensor::empty({count, 1, pixels}), labels = Tensor::empty({count, 1}, DType::i32);
  for (std::int64_t i = 0; i < images.count(); ++i)
    images.data<float>()[i] = static_cast<float>(random_uniform(3, 1, static_cast<std::uint64_t>(i)) - 0.5);
  for (std::int64_t i = 0; i < count; ++i) labels.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % classes);
  return std::make_shared<Dataset>(std::map<std::string, Tensor, std::less<>>{{"images", images}, {"labels", labels}},
                                   5);
}

struct Choice {
  std::string mesh;
  int zero = 0;
  std::string pipeline = "1f1b", recompute = "none";
};

TrainOptions options_of(const Choice& choice) {
  TrainOptions o;
  o.mesh.axes = choice.mesh;
  o.mesh.zero = choice.zero;
  o.mesh.zero_resident = 0;
  o.mesh.pipeline = choice.pipeline;
  o.mesh.sequence_parallel = false;  // a sequence of one position cannot be split
  o.precision.recompute = choice.recompute;
  o.batch = {.micro_batch = 2, .global_batch = global_batch};
  o.run.seed = 11;
  resolve(o, 0);
  return o;
}

/// One rank's run.
struct Run {
  Run(const TrainOptions& o, const MeshPtr& on, const Labels& labels = {})
      : mesh(on),
        plan(o.batch_sizes().on_rank(on->coord(Axis::dp))),
        trainer(std::make_unique<Classifier>(make_build(o, on), pipeline::stage_plan(layers, o.mesh.stages()), labels),
                o, 1 << 10) {}

  double step() {
    const auto next = [&](int m) { return data->make_batch(plan.first_sample(progress.samples, m), plan.micro_batch); };
    const double loss = pipeline::global_loss(*mesh, trainer.gradients(next, 1.0 / global_batch).pipeline.loss);
    trainer.update(1e-2, trainer.gradient_norm());
    progress = {.steps = progress.steps + 1, .samples = progress.samples + global_batch};
    return loss;
  }

  MeshPtr mesh;
  BatchPlan plan;
  Trainer trainer;
  Progress progress;
  RunIdentity identity{.seed = 11};
  std::shared_ptr<const Dataset> data = some_images();
};

template <class F>
void on_ranks(const Choice& choice, const F& f) {
  const TrainOptions o = options_of(choice);
  run_mesh(choice.mesh, [&](const MeshPtr& mesh) {
    Run run(o, mesh);
    f(run);
  });
}

std::vector<double> losses_of_one_rank() {
  std::vector<double> losses;
  on_ranks({"dp=1"}, [&](Run& run) {
    for (int step = 0; step < 4; ++step) losses.push_back(run.step());
  });
  return losses;
}

ParityModel classifier_parity() {
  return {.make = [](const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) -> std::unique_ptr<Model> {
            return std::make_unique<Classifier>(make_build(o, std::move(mesh)),
                                                pipeline::stage_plan(layers, o.mesh.stages()));
          },
          .data =
              [](const TrainOptions&) {
                return GlobalBatch{some_images()->make_batch(0, global_batch), global_batch};
              }};
}

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {{"dp=2"},
                                          {"dp=3", 1},
                                          {"tp=2", 2},
                                          {"pp=2"},
                                          {"pp=2", 3, "interleaved:2"},
                                          {"dp=2", 3, "1f1b", "full"},
                                          {"pp=5", 1, "gpipe"},
                                          {"dp=2,pp=2", 2, "zero-bubble"},
                                          {"dp=2,tp=2", 3, "1f1b", "selective"},
                                          {"dp=2,tp=2,pp=2", 3, "interleaved:2", "every:2"}};
  return all;
}

}  // namespace

TEST_CASE("a model's summary has the parts that this rank holds") {
  run_mesh("pp=2", [](const MeshPtr& mesh) {
    const Classifier model(nn::Build(mesh, DType::f32, 1), pipeline::stage_plan(layers, 2));
    const std::string text = model.summary();
    CHECK(says(text, "Block"));
    CHECK(contains(text, "embed") == mesh->is_first(Axis::pp));
    CHECK(contains(text, "head") == mesh->is_last(Axis::pp));
    CHECK(says(text,
               fmt::format("{} parameters in f32, all of them trained", mesh->is_first(Axis::pp) ? "1,808" : "1,197")));
  });
}

TEST_CASE("a classifier has one rank's losses, gradients and weights on every mesh") {
  const auto reference = parity_reference(options_of({"dp=1"}), classifier_parity());
  for (const Choice& choice : choices()) {
    CAPTURE(choice.mesh);
    CAPTURE(choice.zero);
    CAPTURE(choice.pipeline);
    const TrainOptions o = options_of(choice);
    const Parity parity(o, reference);
    run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                     [&](const std::shared_ptr<ProcessGroup>& world) {
                       const ParityReport report = parity.compare(world);
                       if (world->rank() == 0) CHECK_MESSAGE(report.largest() < 1e-5, parity_table(report, 3));
                     });
  }
}

TEST_CASE("a classifier saved on one mesh goes on on any other") {
  const std::vector<double> losses = losses_of_one_rank();
  CHECK(losses.back() < losses.front());
  const TempFolder folder;
  on_ranks({"dp=2", 3}, [&](Run& run) {
    for (int step = 0; step < 2; ++step) run.step();
    save_run(folder.path(), run.trainer.model(), run.trainer.optimizer(), run.progress, run.identity);
  });
  for (const Choice& choice : choices()) {
    CAPTURE(choice.mesh);
    on_ranks(choice, [&](Run& run) {
      run.progress = load_run(folder.path(), run.trainer.model(), run.trainer.optimizer(), run.identity).progress;
      CHECK(run.progress.samples == 2 * global_batch);
      for (std::size_t step = 2; step < losses.size(); ++step)
        CHECK(std::abs(run.step() - losses[step]) < 1e-5 * losses[step]);
    });
  }
}

TEST_CASE("another configuration or architecture is refused, by the flag that sets it") {
  const TempFolder folder;
  const TrainOptions o = options_of({"dp=1"});
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Run saved(o, mesh);
    save_run(folder.path(), saved.trainer.model(), saved.trainer.optimizer(), saved.progress, saved.identity);
    const auto load_as = [&](const Labels& labels) {
      Run other(o, mesh, labels);
      load_run(folder.path(), other.trainer.model(), other.trainer.optimizer(), other.identity);
    };
    CHECK_THROWS_WITH_AS(load_as({.age = 2}), doctest::Contains("was saved with --image-age 1, and this run has 2"),
                         Error);
    CHECK_THROWS_WITH_AS(load_as({.architecture = "detector"}), doctest::Contains("'classifier'"), Error);
  });
  const Caught as_gpt = caught([&] { read_saved_gpt(checkpoint::Checkpoint(find_saved_run(folder.path()))); });
  CHECK(as_gpt.code == ExitCode::usage);
  CHECK(as_gpt.has("'classifier'; expected 'gpt'"));
}

TEST_CASE("a plan of another number of stages than the mesh has is refused before the first step") {
  TrainOptions o = options_of({"pp=2"});
  const auto make = [&](int stages) {
    run_mesh("pp=2", [&](const MeshPtr& mesh) {
      Trainer(std::make_unique<Classifier>(make_build(o, mesh), pipeline::stage_plan(layers, stages)), o);
    });
  };
  CHECK_NOTHROW(make(2));
  const Caught four = caught([&] { make(4); });
  CHECK(four.code == ExitCode::usage);
  CHECK(four.has("a plan of 4 pipeline stages, and the mesh and --pipeline have 2"));
  o.mesh.pipeline = "interleaved:2";
  CHECK_THROWS_WITH_AS(make(2), doctest::Contains("a plan of 2 pipeline stages, and the mesh and --pipeline have 4"),
                       Error);
}

TEST_CASE("other samples on ranks of tp, and the same on ranks of dp, are refused in the first step") {
  const auto error = [](const char* axes, bool whole_batch, bool same_ids) {
    std::string said;
    run_mesh(axes, [&](const MeshPtr& mesh) {
      const TrainOptions o = options_of({axes});
      Run run(o, mesh);
      const auto next = [&](int) {
        const std::int64_t first = mesh->size(Axis::dp) > 1 || whole_batch ? 0 : mesh->coord(Axis::tp);
        Batch batch = run.data->make_batch(first, 2);
        if (!same_ids) batch.sample_ids = {2 * mesh->world().rank(), 2 * mesh->world().rank() + 1};
        return batch;
      };
      const std::string mine = failure([&] { run.trainer.gradients(next, 1.0 / global_batch); });
      if (mesh->world().rank() == 0) said = mine;
    });
    return said;
  };
  CHECK(says(error("tp=2", false, true),
             "[same_batch] ranks 0 and 1 have different batches at dp=0; expected the same tensors"));
  CHECK(says(error("dp=2", true, true),
             "[same_batch] ranks 0 and 1 have the same batch at dp=0 and dp=1; expected other samples on each"));
  CHECK(error("tp=2", true, true) == "nothing");
  CHECK(error("dp=2", true, false) == "nothing");
}

TEST_CASE("a model that does not divide its samples over cp is refused there, not counted twice") {
  const TrainOptions o = options_of({"cp=2"});
  const auto train = [&] { run_mesh("cp=2", [&](const MeshPtr& mesh) { Run(o, mesh).step(); }); };
  CHECK_THROWS_WITH_AS(train(), doctest::Contains("expected cp=1"), Error);
}
