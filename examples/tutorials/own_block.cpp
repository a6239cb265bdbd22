// Tutorial 5: a model of your own on every axis of the mesh, with any schedule and ZeRO, compared with one rank; and
// saved on one mesh, resumed on another.
//
//   build/bin/tutorial_own_block
//
// The model comes first: Gated, Block, Head and OwnModel name no axis. Below it are the training step, the comparison
// of losses and gradients, and the checkpoint. docs/writing_a_model.md explains all of it.
#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>

#include "data/corpus.h"
#include "data/sampler.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/moe.h"
#include "nn/positions.h"
#include "nn/sequence_order.h"
#include "nn/vocab_embedding.h"
#include "train/program/program.h"
#include "train/runs/saved_run.h"
#include "train/step/setup.h"
#include "train/step/trainer.h"

using namespace trireme;

namespace {

constexpr std::int64_t width = 32, heads = 4, context = 32, layers = 4, global_batch = 8, micro_batch = 2;
constexpr int steps = 3;

// ---- the model ------------------------------------------------------------------------------------------------------

/// gain * narrow(tanh(a) * b), where a and b are the two halves of widen(x). The hidden features are split over tp.
struct Gated : nn::Module {
  nn::Linear widen, narrow;
  ParameterPtr gain;  // [D]
  Gated(const nn::Build& b, std::int64_t hidden)
      : Module(b),
        widen(b / "widen", width, {2, hidden}, nn::Split::out, {.bias = false}),
        narrow(b / "narrow", hidden, {width}, nn::Split::in, {.bias = true}),
        gain(b.parameter("gain", {width}, {.tp = b.per_position_placement()}, nn::Init::ones())) {}

  Tensor forward(const Tensor& x) override {         // [B, T, D] -> [B, T, D]
    const Tensor both = widen(x);                    // [B, T, 2 F/tp]: this rank's part of a, then of b
    const std::int64_t features = both.size(2) / 2;  // F/tp
    return narrow(tanh(slice(both, 2, 0, features)) * slice(both, 2, features, features)) * gain->value();
  }
};

struct Block : nn::Module {
  nn::RmsNorm norm1, norm2;
  nn::Attention attention;  // heads over tp, the sequence over cp
  Gated gated;
  nn::Moe mixture;  // experts over ep
  explicit Block(const nn::Build& b)
      : Module(b),
        norm1(b / "norm1", width),
        norm2(b / "norm2", width),
        attention(b / "attention",
                  {.width = width, .heads = heads, .bias = false, .kv_heads = 2, .rope = nn::Rotary{}}),
        gated(b / "gated", 2 * width),
        mixture(b / "mixture", {.expert = {.width = width, .hidden = width, .bias = false}, .experts = {.count = 4}}) {}

  Tensor forward(const Tensor& x) override {  // [B, T, D] -> [B, T, D]
    const Tensor h = x + attention(norm1(x)), normed = norm2(h);
    return h + gated(normed) + mixture(normed);
  }
};

struct Head : nn::Module {
  nn::RmsNorm norm;
  nn::VocabEmbedding table;  // the vocabulary over tp
  Head(const nn::Build& b, std::int64_t vocab)
      : Module(b), norm(b / "norm", width), table(b / "table", vocab, width, 0.02, false) {}
  Tensor forward(const Tensor& x) override { return table.logits(norm(x)); }  // [B, T, D] -> [B, T, V/tp]
};

/// One rank's part of the model. Model assigns the blocks to stages, and recomputes their activations if asked to.
struct OwnModel : Model {
  std::unique_ptr<nn::VocabEmbedding> tokens;  // first stage
  std::unique_ptr<Head> head;                  // last stage
  OwnModel(const nn::Build& b, std::int64_t vocab, pipeline::StagePlan plan) : Model(b, std::move(plan)) {
    if (holds_front()) tokens = std::make_unique<nn::VocabEmbedding>(front_unit("tokens"), vocab, width, 0.02, false);
    make_blocks([](const nn::Build& block, int) { return std::make_unique<Block>(block); });
    if (holds_end()) head = std::make_unique<Head>(end_unit("head"), vocab);
  }

  Tensor front(const Batch& batch) override { return (*tokens)(batch["inputs"]); }  // ids [B, T] -> [B, T, D]
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override {
    return nn::cross_entropy(
        (*head)(hidden), batch["targets"],
        {.slice = head->table.slice(), .group = &mesh().group(Axis::tp), .smoothing = 0, .scale = scale});
  }
  Shape hidden_shape(std::int64_t samples) const override {  // of this rank's positions: [B, T/(cp tp), D]
    return {samples, context / nn::sequence_length(mesh(), parallelism(), 1), width};
  }
  Batch local_part(const Batch& batch) override {  // [B, T] -> [B, T/cp]
    Batch local = batch;
    for (auto& [name, ids] : local.tensors) ids = nn::local_tokens(ids, mesh());
    return local;
  }
  std::string architecture() const override { return "own"; }
  std::string configuration() const override {
    return fmt::format(R"({{"width": {}, "heads": {}, "layers": {}}})", width, heads, layers);
  }
};

// ---- training it on a mesh ------------------------------------------------------------------------------------------

struct Choice {
  const char* mesh;
  int zero = 0;
  const char* pipeline = "1f1b";
  const char* recompute = "none";
};

TrainOptions options_of(const Choice& choice) {
  TrainOptions o;
  o.mesh.axes = choice.mesh;
  o.mesh.zero = choice.zero;
  o.mesh.zero_resident = 0;  // these weights are so small that ZeRO-3 would keep all of them whole
  o.mesh.pipeline = choice.pipeline;
  o.precision.recompute = choice.recompute;
  o.batch = {.micro_batch = micro_batch, .global_batch = global_batch};
  o.optimizer.optimizer = "sgd";
  o.optimizer.weight_decay = 0;
  o.run.seed = 7;
  resolve(o, 0);
  return o;
}

/// One rank's part of a run.
class Run {
 public:
  Run(const std::shared_ptr<ProcessGroup>& world, const TrainOptions& o, const Corpus& corpus)
      : mesh(std::make_shared<const DeviceMesh>(world, o.mesh.shape)),
        trainer(std::make_unique<OwnModel>(make_build(o, mesh), corpus.tokenizer->vocab_size(),
                                           pipeline::stage_plan(layers, o.mesh.stages())),
                o),
        identity{.seed = o.run.seed, .tokenizer = corpus.tokenizer->to_json(), .data = corpus.hash},
        sampler_(corpus.train, context, 7),
        plan_(o.batch_sizes().on_rank(mesh->coord(Axis::dp))) {}

  /// Computes the gradients of the next step, and returns its loss; the same on every rank.
  double gradients() {
    const auto next = [&](int microbatch) {
      return sampler_.make_batch(plan_.first_sample(progress.samples, microbatch), micro_batch);
    };
    constexpr double scale = 1.0 / (global_batch * context);  // the only division
    return pipeline::global_loss(*mesh, trainer.gradients(next, scale).pipeline.loss);
  }
  void update() {
    trainer.update(0.5, trainer.gradient_norm());
    ++progress.steps;
    progress.samples += global_batch;
  }

  std::shared_ptr<const DeviceMesh> mesh;
  Trainer trainer;
  Progress progress;
  RunIdentity identity;

 private:
  Sampler sampler_;
  BatchPlan plan_;
};

/// Calls f(run) on every rank of the mesh.
template <class F>
void on_mesh(const Choice& choice, const Corpus& corpus, const F& f) {
  const TrainOptions o = options_of(choice);
  run_thread_ranks(o.mesh.shape.ranks(), 1, std::chrono::seconds(60), [&](const std::shared_ptr<ProcessGroup>& world) {
    Run run(world, o, corpus);
    f(run);
  });
}

// ---- comparing ------------------------------------------------------------------------------------------------------

/// The results of one rank, with which every mesh is compared.
struct Reference {
  std::vector<double> losses;
  std::map<std::string, Tensor> gradients;  // of the first step, whole
};

Reference on_one_rank(const Corpus& corpus) {
  Reference one;
  on_mesh({"dp=1"}, corpus, [&](Run& run) {
    for (int step = 0; step < steps; ++step) {
      one.losses.push_back(run.gradients());
      for (const StateTensor& piece : run.trainer.gradient_pieces())
        if (step == 0) one.gradients[piece.parameter->name] = clone(piece.value);
      run.update();
    }
  });
  return one;
}

/// The difference between a piece of a gradient and the same rectangle of `whole`, relative to the norm of `whole`.
double difference(const Tensor& piece, const Rectangle& where, const Tensor& whole) {
  Tensor expected = whole;
  for (int dim = 0; dim < piece.dims(); ++dim) expected = slice(expected, dim, where.start[dim], piece.size(dim));
  return std::sqrt(sum(square(piece - expected)).item() / sum(square(whole)).item());
}

/// The largest relative difference between any rank of the mesh and one rank, over losses and first gradients.
double largest_difference(const Choice& choice, const Corpus& corpus, const Reference& one) {
  std::mutex mutex;
  double largest = 0;
  const auto note = [&](double found) {
    const std::scoped_lock lock(mutex);
    largest = std::max(largest, std::isnan(found) ? INFINITY : found);
  };
  on_mesh(choice, corpus, [&](Run& run) {
    for (const double expected : one.losses) {
      note(std::abs(run.gradients() - expected) / expected);
      for (const StateTensor& piece : run.trainer.gradient_pieces())
        if (run.progress.steps == 0)
          note(difference(piece.value, piece.rectangle(), one.gradients.at(piece.parameter->name)));
      run.update();
    }
  });
  return largest;
}

/// Saves after two steps on one mesh, resumes on another, and compares the loss of the third step with one rank's.
double difference_after_resume(const Choice& before, const Choice& after, const Corpus& corpus, const Reference& one) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("trireme_own_block.{}", ::getpid());
  on_mesh(before, corpus, [&](Run& run) {
    for (int step = 0; step < 2; ++step) {
      run.gradients();
      run.update();
    }
    save_run(folder, run.trainer.model(), run.trainer.optimizer(), run.progress, run.identity);
  });
  double found = 0;
  on_mesh(after, corpus, [&](Run& run) {
    run.progress = load_run(folder, run.trainer.model(), run.trainer.optimizer(), run.identity).progress;
    const double loss = run.gradients();
    if (run.mesh->rank() == 0) found = std::abs(loss - one.losses[2]) / one.losses[2];
  });
  std::filesystem::remove_all(folder);
  return found;
}

int compare_meshes() {
  const Corpus corpus = load_corpus({.path = "LICENSE", .context = context});
  const Reference one = on_one_rank(corpus);
  fmt::print("one rank: losses {:.6f} {:.6f} {:.6f}\n", one.losses[0], one.losses[1], one.losses[2]);

  bool equal = true;
  for (const Choice& choice :
       {Choice{"dp=2"}, Choice{"tp=2", 1}, Choice{"cp=2", 2}, Choice{"pp=2", 1}, Choice{"pp=2", 2, "interleaved:2"},
        Choice{"dp=2,ep=2", 2, "1f1b", "full"}, Choice{"dp=2,tp=2", 3}, Choice{"tp=2,pp=2,cp=2", 2, "zero-bubble"},
        Choice{"dp=2,ep=2,tp=2,pp=2", 3, "interleaved:2", "selective"}}) {
    const double largest = largest_difference(choice, corpus, one);
    fmt::print("{:<20} ZeRO {}  {:<13}  recompute {:<9}  largest relative difference {:.1e}\n", choice.mesh,
               choice.zero, choice.pipeline, choice.recompute, largest);
    equal = equal && largest < 1e-5;
  }
  const double resumed = difference_after_resume({"dp=2", 3}, {"tp=2,pp=2", 0, "interleaved:2"}, corpus, one);
  fmt::print("saved on dp=2 with ZeRO 3, resumed on tp=2,pp=2: the next loss differs by {:.1e}\n", resumed);
  return equal && resumed < 1e-5 ? 0 : 1;
}

}  // namespace

int main() { return run_program(compare_meshes); }
