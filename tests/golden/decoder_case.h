// A small decoder of which PyTorch computed logits, loss and every gradient (of what is trained), compared on any mesh.
// Read next: tests/golden/decoders_test.cpp, tests/golden/architectures_test.cpp.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/mesh.h"

namespace trireme::testing {

struct DecoderCase {
  std::string name;
  GptConfig config;
};

/// The decoder that most cases change: Llama's parts.
inline GptConfig small_decoder() {
  GptConfig c = {.layers = 2, .heads = 2, .width = 12, .context = 12, .vocab = 11, .dropout = 0, .bias = false};
  c.activation = Activation::swiglu;
  c.kv_heads = 1;
  c.ffn_width = 6;
  c.norm = Norm::rms;
  c.positions = PositionEncoding::rope;
  return c;
}

/// Runs the case on a mesh, forward and backward, and compares all that the file has. Over dp the two sequences are
/// split. In f64, which has no buckets of gradients, only on one rank.
inline void check_decoder(const GoldenFile& file, const DecoderCase& x, const std::string& mesh_text, DType dtype,
                          bool sequence) {
  const std::string prefix = x.name + ".";
  const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
  const auto compare = [&](const std::string& what, const Tensor& got) {
    const double off = relative_difference(cast(got.detach(), DType::f64), file.read(prefix + what));
    CHECK_MESSAGE(off < tolerance, x.name, " on ", mesh_text, " in ", name(dtype), ": ", what, " is off by ", off);
  };
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, dtype, 1, {.sequence = sequence}), x.config);
    for (const ParameterPtr& p : model.parameters()) set_whole(*p, file.read(prefix + "weights." + p->name));
    std::optional<GradSync> sync;  // its buckets are f32
    if (dtype == DType::f32) sync.emplace(model.parameters(), *mesh);
    const std::int64_t count = 2 / mesh->size(Axis::dp), first = mesh->coord(Axis::dp) * count;
    const auto mine = [&](const char* what) {
      return clone(view::slice(file.read(prefix + what), 0, first, count));  // [count, T]
    };
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(first + i);
    Batch micro_batch = token_batch(mine("ids"), mine("targets"), numbers);
    if (file.has(prefix + "positions")) micro_batch.tensors["positions"] = mine("positions");
    pipeline::Executor executor(pipeline::make_schedule("1f1b", mesh->size(Axis::pp), 1), mesh->group(Axis::pp));
    Tensor logits;
    const auto forward = [&](int stage, const Tensor& input, int) {
      const Batch batch = model.enter(micro_batch);
      const Tensor hidden = model.hidden(stage, input, batch);
      if (!mesh->is_last(Axis::pp)) return hidden;
      if (mesh->size(Axis::cp) * mesh->size(Axis::tp) * mesh->size(Axis::dp) == 1)
        logits = model.gathered_logits(hidden).detach();
      return model.loss(hidden, batch, 1.0 / static_cast<double>(file.read(prefix + "targets").count()));
    };
    const Tensor loss = executor.run({forward, model.hidden_shape(count), model.dtype()}).loss;
    if (sync) sync->finish();
    const double total = pipeline::global_loss(*mesh, loss);
    const double expected = file.number(prefix + "loss");
    CHECK_MESSAGE(std::abs(total - expected) < tolerance * expected, x.name, " on ", mesh_text, ": ", total);
    if (logits.defined() && dtype == DType::f32) compare("logits", logits);
    for (const ParameterPtr& p : trained(model.parameters())) compare("grads." + p->name, whole(p->grad(), *p, *mesh));
  });
}

}  // namespace trireme::testing
