// Models that `transformers` has saved (make_hugging_face.py), on many meshes: its logits, loss and gradients; and what
// we write of them is what it has written.
#include <filesystem>

#include "models/hugging_face/export.h"
#include "models/hugging_face/folder.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/elements.h"
#include "tests/support/files.h"
#include "tests/support/hugging_face.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace hugging_face_golden_test {
namespace {

const fs::path goldens = "tests/golden/hugging_face";

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(goldens)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void check(const std::string& what, const Tensor& got, const Tensor& expected) {
  const double off = relative_difference(cast(got, DType::f64), cast(expected, DType::f64));
  CHECK_MESSAGE(off < 1e-5, what, " is off by ", off);
}

/// Loads, computes and differentiates the batch on a mesh.
void check_on_mesh(const std::string& name, const std::string& mesh_text) {
  const hugging_face::Folder folder(goldens / name);
  const SafetensorsFile expected(goldens / name / "expected.safetensors");
  GptConfig config = folder.config();
  config.experts.aux_loss = config.experts.z_loss = 0;
  const WeightMap map = hugging_face_map(config);
  const Tensor ids = expected.read("ids"), targets = expected.read("targets");
  const std::int64_t rows = ids.size(0), length = ids.size(1);
  if (config.positions == PositionEncoding::rope) config.context = length;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const int dp = mesh->size(Axis::dp);
    Gpt model(nn::Build(mesh, DType::f32, 1), config);
    folder.load(nn::detail::held_weights(model).tensors, mesh->world());
    GradSync sync(model.parameters(), *mesh);
    const auto mine = [&](const Tensor& x) {
      return contiguous(view::slice(x, 0, mesh->coord(Axis::dp) * (rows / dp), rows / dp));
    };
    std::vector<std::int64_t> samples(static_cast<std::size_t>(rows / dp));
    const Batch whole = token_batch(mine(ids), mine(targets), samples);
    pipeline::Executor executor(pipeline::make_schedule("1f1b", mesh->size(Axis::pp), 1), mesh->group(Axis::pp));
    model.run_state().step_sequences = rows;
    Tensor logits;
    const auto forward = [&](int stage, const Tensor& input, int) {
      const Batch batch = model.enter(whole);
      const Tensor hidden = model.hidden(stage, input, batch);
      if (!mesh->is_last(Axis::pp)) return hidden;
      if (mesh->size(Axis::cp) == 1) logits = model.gathered_logits(hidden).detach();
      return model.loss(hidden, batch, 1.0 / static_cast<double>(targets.count()));
    };
    const Shape hidden{rows / dp, length / mesh->size(Axis::cp), config.width};
    const Tensor loss = executor.run({forward, hidden, model.dtype()}).loss;
    sync.finish();
    const double total = pipeline::global_loss(*mesh, loss);
    CHECK(std::abs(total - expected.read("loss").item()) < 1e-5 * total);
    if (logits.defined()) check(name + " on " + mesh_text + ": logits", logits, mine(expected.read("logits")));
    for (const auto& [tensor, value] : their_values(held_gradients(model), map, mesh->world()))
      check(name + " on " + mesh_text + ": the gradient of " + tensor, value, expected.read("grads." + tensor));
  });
}

/// Loads on a mesh, writes without a step, and compares all bytes.
void check_written(const std::string& name, const std::string& mesh_text) {
  const TempFolder place;
  const hugging_face::Folder folder(goldens / name);
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 1), folder.config());
    folder.load(nn::detail::held_weights(model).tensors, mesh->world());
    hugging_face::write_folder(place / "out", {.config = model.config(), .dtype = model.dtype(), .shard_bytes = 6'000},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
  const hugging_face::Folder back(place / "out");
  CHECK(back.model_type() == folder.model_type());
  const auto index = hugging_face::parse_index(content_of(place / "out" / hugging_face::index_name), "index");
  const SafetensorsFile theirs(goldens / name / "model.safetensors");
  std::size_t count = 0;
  for (const std::string& tensor : theirs.names()) {
    REQUIRE_MESSAGE(index.contains(tensor), tensor);
    const SafetensorsFile file(place / "out" / index.at(tensor));
    REQUIRE(file.shape(tensor) == theirs.shape(tensor));
    CHECK(values(file.read(tensor)) == values(theirs.read(tensor)));
    ++count;
  }
  CHECK(count == index.size());
}

}  // namespace

TEST_CASE("models that transformers has saved have its logits, loss and gradients on every mesh") {
  REQUIRE(names().size() >= 4);
  for (const std::string& name : names())
    for (const std::string& mesh : Meshes{"dp=1", "tp=2", "dp=2", "cp=2", "tp=2,pp=2"}) check_on_mesh(name, mesh);
}

TEST_CASE("what is written of them, from any mesh, has the same tensors") {
  for (const std::string& name : names())
    for (const std::string& mesh : Meshes{"dp=1", "dp=2,tp=2", "pp=2"}) check_written(name, mesh);
}

}  // namespace hugging_face_golden_test
