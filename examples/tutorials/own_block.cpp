// Tutorial 5: a block of one's own on every axis of the mesh and under ZeRO, compared with one rank.
//
//   build/bin/tutorial_own_block
//
// The model stands on top: Gated, Block and Head name no axis. Below it are the training step, with what a pipeline
// needs, and the comparison of losses and gradients. docs/writing_a_model.md goes through all of it.
#include <fmt/core.h>

#include <cmath>
#include <map>

#include "data/corpus.h"
#include "data/sampler.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/moe.h"
#include "nn/positions.h"
#include "nn/sequence_order.h"
#include "nn/vocab_embedding.h"
#include "optim/gradient_norm.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/stage_plan.h"
#include "parallel/zero/zero.h"
#include "train/program.h"

using namespace trireme;

namespace {

constexpr std::int64_t width = 32, heads = 4, context = 32, layers = 4, global_batch = 8, micro_batch = 2;
constexpr int steps = 3;

// ---- the model ------------------------------------------------------------------------------------------------------

/// gain * narrow(tanh(a) * b), a and b the two halves of widen(x). Its hidden features are split over tp.
struct Gated : nn::Module {
  nn::Linear widen, narrow;
  nn::ParameterPtr gain;  // [D]
  Gated(const nn::Build& b, std::int64_t hidden)
      : Module(b),
        widen(b / "widen", width, {2, hidden}, nn::Split::out, {.bias = false}),
        narrow(b / "narrow", hidden, {width}, nn::Split::in, {.bias = true}),
        gain(b.parameter("gain", {width}, {.tp = b.beside_residual()}, nn::Init::ones())) {}

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
        attention(b / "attention", {.width = width, .heads = heads, .bias = false, .kv_heads = 2, .rotary = true}),
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

/// The part of the model that lives on one pipeline rank.
struct Model {
  std::unique_ptr<nn::VocabEmbedding> tokens;  // first stage
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Head> head;  // last stage

  Model(const nn::Build& b, std::int64_t vocab) {
    const DeviceMesh& mesh = b.mesh();
    const pipeline::StagePlan plan = pipeline::stage_plan(layers, mesh.size(Axis::pp));
    const pipeline::BlockRange mine = plan[static_cast<std::size_t>(mesh.coord(Axis::pp))];
    // unit(): what ZeRO 3 gathers together.
    if (mesh.is_first(Axis::pp))
      tokens = std::make_unique<nn::VocabEmbedding>((b / "tokens").unit(), vocab, width, 0.02, false);
    for (int i = mine.first; i < mine.end(); ++i)
      blocks.push_back(std::make_unique<Block>((b / "blocks" / std::to_string(i)).unit()));
    if (mesh.is_last(Axis::pp)) head = std::make_unique<Head>((b / "head").unit(), vocab);
  }

  /// [B, T, D] from the stage before, or the first stage's ids [B, T] -> [B, T, D]; last stage: logits [B, T, V/tp].
  Tensor operator()(const Tensor& input, const Tensor& ids) {
    Tensor x = tokens ? (*tokens)(ids) : input;
    for (const auto& block : blocks) x = (*block)(x);
    return head ? (*head)(x) : x;
  }
};

// ---- training it on a mesh, and comparing -----------------------------------------------------------------------------

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, Tensor> gradients;  // of the first step, whole
};

/// Of a rectangle of a gradient to the same rectangle of `whole`, relative to the norm of all of it.
double difference(const Tensor& piece, const Rectangle& where, const Tensor& whole) {
  Tensor expected = whole;
  for (int dim = 0; dim < piece.dims(); ++dim) expected = slice(expected, dim, where.start[dim], piece.size(dim));
  return std::sqrt(sum(square(piece - expected)).item() / sum(square(whole)).item());
}

/// Trains for a few steps on this rank of the mesh. With a reference: -> the largest relative difference to it, the same
/// on every rank. Without one, on one rank: fills `outcome`.
double train(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape, int zero_stage, const Corpus& corpus,
             const Outcome* reference, Outcome* outcome) {
  const auto mesh = std::make_shared<const DeviceMesh>(world, shape);
  const nn::Parallelism parallelism{.sequence = mesh->size(Axis::tp) > 1};
  const nn::Build build(mesh, DType::f32, 7, parallelism);
  Model model(build, corpus.tokenizer->vocab_size());
  Zero zero(build.parameters(), build.units(), *mesh, {.stage = zero_stage, .resident_bytes = 0});
  const auto optimizer = optim::make_sgd(zero.shards(), {.momentum = 0.9});
  zero.attach(*optimizer);

  const Sampler sampler(corpus.train, context, 7);
  const BatchPlan plan{global_batch, micro_batch, mesh->coord(Axis::dp), mesh->size(Axis::dp)};
  plan.check();
  const int micro_batches = static_cast<int>(plan.micro_batches());
  pipeline::Executor executor(pipeline::make_schedule("1f1b", mesh->size(Axis::pp), micro_batches),
                              mesh->group(Axis::pp));
  const std::int64_t local = context / nn::sequence_length(*mesh, parallelism, 1);  // T/(cp tp) tokens pass on
  constexpr double scale = 1.0 / (global_batch * context);                          // the only division

  double largest = 0;
  for (int step = 0; step < steps; ++step) {
    const auto forward = [&](int, const Tensor& input, int microbatch) {
      const Batch batch = sampler.make_batch(plan.first_sample(step * global_batch, microbatch), micro_batch);
      build.run()->first_sample = batch.sample_ids.front();
      build.run()->step_sequences = global_batch;
      const Tensor y = model(input, nn::local_tokens(batch["inputs"], *mesh));
      if (!model.head) return y;
      return nn::cross_entropy(
          y, nn::local_tokens(batch["targets"], *mesh),
          {.slice = model.head->table.slice(), .group = &mesh->group(Axis::tp), .smoothing = 0, .scale = scale});
    };
    zero.zero();
    const pipeline::StepReport report =
        executor.run({forward, {micro_batch, local, width}, DType::f32},
                     [&](int, int microbatch) { zero.last_microbatch(microbatch + 1 == micro_batches); });
    zero.finish();
    const double loss = pipeline::global_loss(*mesh, report.loss);

    for (std::size_t i = 0; step == 0 && i < zero.shards().size(); ++i) {
      const std::string& name = zero.shards()[i]->parameter->name;
      if (reference == nullptr) {
        outcome->gradients[name] = clone(zero.gradient(i));
      } else {
        const double found = difference(zero.gradient(i), zero.shards()[i]->rectangle(), reference->gradients.at(name));
        largest = std::max(largest, std::isnan(found) ? INFINITY : found);
      }
    }
    if (reference == nullptr) {
      outcome->losses.push_back(loss);
    } else {
      const double expected = reference->losses[static_cast<std::size_t>(step)];
      largest = std::max(largest, std::abs(loss - expected) / expected);
    }
    zero.update(*optimizer, 0.5, optim::clip_factor(zero.gradient_norm(), 1.0));
  }
  Tensor over_ranks = Tensor::full({1}, largest, DType::f64);
  world->all_reduce(over_ranks, ReduceOp::max).wait();
  return over_ranks.item();
}

struct Case {
  const char* mesh;
  int zero_stage;
};

int compare_meshes() {
  const Corpus corpus = load_corpus({.path = "LICENSE", .context = context});

  Outcome one;
  train(self_group(), MeshShape{}, 1, corpus, nullptr, &one);
  fmt::print("one rank: losses {:.6f} {:.6f} {:.6f}\n", one.losses[0], one.losses[1], one.losses[2]);

  bool equal = true;
  for (const Case& run : {Case{"dp=2", 1}, Case{"tp=2", 1}, Case{"cp=2", 2}, Case{"pp=2", 1}, Case{"dp=2,ep=2", 2},
                          Case{"dp=2,tp=2", 3}, Case{"tp=2,pp=2,cp=2", 2}, Case{"dp=2,ep=2,tp=2,pp=2", 3}}) {
    const MeshShape shape = parse_mesh(run.mesh, 0);
    double largest = 0;
    run_thread_ranks(shape.ranks(), 1, std::chrono::seconds(60), [&](const std::shared_ptr<ProcessGroup>& world) {
      const double found = train(world, shape, run.zero_stage, corpus, &one, nullptr);
      if (world->rank() == 0) largest = found;
    });
    fmt::print("{:<20} ZeRO {}  largest relative difference of losses and gradients {:.1e}\n", run.mesh, run.zero_stage,
               largest);
    equal = equal && largest < 1e-5;
  }
  return equal ? 0 : 1;
}

}  // namespace

int main() { return run_program(compare_meshes); }
