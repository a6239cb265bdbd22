// What a model computes, in files that other programs can compare: logits, gradients, weights after a few steps, and
// greedy text. scripts/peer_hf.py runs it beside `transformers`.
//
//   build/bin/model_peer --checkpoint DIR --batch batch.npz --out OUT --mesh tp=2
//
// batch.npz has inputs and targets [B, T], and a prompt [N]. OUT gets results.npz (logits [B, T, V], losses before each
// step, ids of the greedy text), and gradients.safetensors and trained.safetensors with the other program's names.
// Read next: scripts/peer_hf.py.
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "core/io.h"
#include "data/npy.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/hugging_face.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/gpt_source.h"
#include "train/options/flags.h"
#include "train/program/program.h"
#include "train/step/trainer.h"

using namespace trireme;
using namespace trireme::testing;
using MeshPtr = std::shared_ptr<const DeviceMesh>;

namespace {

struct Options {
  std::string checkpoint, batch, out, mesh = "dp=1";
  std::int64_t steps = 5, greedy = 200;
  double lr = 1e-3, weight_decay = 0.1, eps = 1e-4;
};

void declare(Flags& flags, Options& o) {
  flags.group("what");
  flags.add("checkpoint", "PATH", o.checkpoint, "a folder in Hugging Face's layout, or a run");
  flags.add("batch", "FILE", o.batch, "inputs, targets and prompt, .npz");
  flags.add("out", "DIR", o.out, "for the results");
  flags.add("mesh", "AXES", o.mesh, "tp and pp; ranks are threads");
  flags.add("steps", "N", o.steps, "steps of AdamW", Range::at_least(0));
  flags.add("greedy", "N", o.greedy, "tokens after the prompt", Range::at_least(0));
  flags.add("lr", "F", o.lr, "learning rate", Range::above(0));
  flags.add("weight-decay", "F", o.weight_decay, "of matrices", Range::at_least(0));
  flags.add("eps", "F", o.eps, "of AdamW", Range::above(0));
}

TrainOptions train_options(const Options& o, std::int64_t rows) {
  TrainOptions t;
  t.mesh.axes = o.mesh;
  t.mesh.ranks = "threads";
  t.batch = {.micro_batch = rows, .global_batch = rows};
  t.optimizer.weight_decay = o.weight_decay;
  t.optimizer.eps = o.eps;
  t.optimizer.clip = 0;
  t.optimizer.beta1 = 0.9;
  t.optimizer.beta2 = 0.95;
  resolve(t, 0);
  return t;
}

/// f32, whatever the file has; without losses of their own, which other programs compute in other ways.
std::unique_ptr<Gpt> load(const Options& o, const TrainOptions& t, const MeshPtr& mesh) {
  GptSource source(mesh->world(), o.checkpoint);
  GptConfig config = source.config();
  config.experts.aux_loss = config.experts.z_loss = 0;
  std::unique_ptr<Gpt> model = make_gpt(t, config, mesh, true);
  source.load(*model);
  return model;
}

/// The logits of a batch, [B, T, V], on the last stage.
Tensor logits_of(Gpt& model, const Batch& batch) {
  const NoGrad guard;
  const DeviceMesh& mesh = model.mesh();
  pipeline::Executor executor(pipeline::forward_only(mesh.size(Axis::pp), 1, model.chunks()), mesh.group(Axis::pp));
  Tensor logits;
  model.run_state().training = false;
  const auto forward = [&](int stage, const Tensor& input, int) {
    const Batch local = model.enter(batch);
    const Tensor hidden = model.hidden(stage, input, local);
    if (!mesh.is_last(Axis::pp)) return hidden;
    logits = model.gathered_logits(hidden);
    return Tensor();
  };
  const Shape hidden = model.hidden_shape(batch["inputs"].size(0), batch["inputs"].size(1));
  executor.run({.forward = forward, .activation_shape = hidden, .dtype = model.dtype()});
  model.run_state().training = true;
  return logits;
}

void write_tensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const auto& [name, tensor] : tensors) writer.write(tensor);
  writer.commit();
}

int run(const Options& o) {
  make_directories(o.out);
  std::map<std::string, Tensor> given;
  for (auto& [name, tensor] : read_npz(o.batch)) given[name] = cast(tensor, DType::i32);
  const Tensor inputs = given.at("inputs"), prompt = given.at("prompt");
  const std::int64_t rows = inputs.size(0), targets = inputs.count();
  const TrainOptions t = train_options(o, rows);
  std::mutex mutex;
  std::vector<std::pair<std::string, Tensor>> results;
  run_thread_ranks(t.mesh.shape.ranks(), 1, std::chrono::seconds(60), [&](const std::shared_ptr<ProcessGroup>& world) {
    const auto mesh = std::make_shared<const DeviceMesh>(world, t.mesh.shape);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
    const Batch batch = token_batch(inputs, given.at("targets"), samples);
    Trainer trainer(load(o, t, mesh), t);
    Gpt& model = dynamic_cast<Gpt&>(trainer.model());
    const WeightMap map = hugging_face_map(model.config());
    const bool first = mesh->rank() == 0;
    const Tensor logits = logits_of(model, batch);
    if (logits.defined() && mesh->coord(Axis::tp) == 0) {
      const std::scoped_lock lock(mutex);
      results.emplace_back("logits", logits);
    }
    std::vector<double> losses;
    for (std::int64_t step = 0; step <= o.steps; ++step) {
      const Tensor loss =
          trainer.gradients([&](int) { return batch; }, 1.0 / static_cast<double>(targets)).pipeline.loss;
      losses.push_back(pipeline::global_loss(*mesh, loss));
      if (step == 0) {
        const auto gradients = their_values(held_gradients(model), map, mesh->world());
        if (first) write_tensors(o.out + "/gradients.safetensors", gradients);
      }
      if (step < o.steps) trainer.update(o.lr, trainer.gradient_norm());
    }
    const auto trained = their_values(nn::detail::held_weights(model).tensors, map, mesh->world());
    if (first) write_tensors(o.out + "/trained.safetensors", trained);
    const std::unique_ptr<Gpt> fresh = load(o, t, mesh);
    fresh->run_state().training = false;
    const GenerateOptions options = {.length = o.greedy, .temperature = 0};
    const std::vector<std::int32_t> ids = generate(*fresh, prompt.span<const std::int32_t>(), options);
    if (!first) return;
    const std::scoped_lock lock(mutex);
    results.emplace_back("losses",
                         Tensor::from(std::span<const double>(losses), {static_cast<std::int64_t>(losses.size())}));
    results.emplace_back("greedy",
                         Tensor::from(std::span<const std::int32_t>(ids), {static_cast<std::int64_t>(ids.size())}));
  });
  write_npz(o.out + "/results.npz", results);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("model_peer", "Computes what other programs can compare with a model of theirs.");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    return run(options);
  });
}
