// Fine-tuning on dialogues against TRL's SFTTrainer (make_trl.py), on meshes: the tokenizer, the template, which tokens
// are targets, how dialogues are packed, and adapters that PEFT has saved; by the loss and all gradients of a step.
#include <cmath>
#include <filesystem>

#include "models/hugging_face/adapter_weights.h"
#include "parallel/data_parallel/grad_sync.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/elements.h"
#include "tests/support/hugging_face.h"
#include "tests/support/mesh.h"
#include "train/gpt/dialogue_data.h"
#include "train/gpt/gpt_source.h"

using namespace trireme;
using namespace trireme::testing;

namespace trl_golden_test {
namespace {

const std::filesystem::path golden = "tests/golden/trl";
constexpr std::int64_t context = 48;

/// Where each gradient lies in their files.
WeightMap map_of(const GptConfig& config) {
  if (config.lora.rank == 0) return hugging_face_map(config);
  WeightMap map;
  for (const hugging_face::AdaptableLayer& layer : hugging_face::adaptable_layers(config))
    hugging_face::add_adapter(map, layer, config.lora.rank);
  return map;
}

/// One step over all dialogues; `what`: weights or adapters.
void check_on_mesh(const std::string& what, const std::string& mesh_text) {
  const SafetensorsFile expected(golden / "expected.safetensors");
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptSource source(mesh->world(), golden.string(), what == "adapters" ? (golden / "adapter").string() : "");
    DataOptions options;
    options.data = (golden / "dialogues.jsonl").string();
    options.val_fraction = 0;
    const ChatTemplate chat = ChatTemplate::load(golden / "template.jinja");
    const DialogueData data = load_dialogues(options, chat, context, 1, source.tokenizer());
    CHECK(data.train->report().cut > 0);
    CHECK(data.train->targets() == expected.read(what + ".targets").item());
    Gpt model(nn::Build(mesh, DType::f32, 1), source.config());
    source.load(model);
    GradSync sync(model.parameters(), *mesh);
    const std::int64_t dp = mesh->size(Axis::dp), rows = data.train->count() / dp;
    REQUIRE(data.train->count() % dp == 0);
    const Batch mine = data.train->make_batch(mesh->coord(Axis::dp) * rows, rows);  // of the first epoch
    pipeline::Executor executor(pipeline::make_schedule("1f1b", mesh->size(Axis::pp), 1), mesh->group(Axis::pp));
    const auto forward = [&](int stage, const Tensor& input, int) {
      const Batch batch = model.enter(mine);
      const Tensor hidden = model.hidden(stage, input, batch);
      return mesh->is_last(Axis::pp) ? model.loss(hidden, batch, 1.0 / static_cast<double>(data.train->targets()))
                                     : hidden;
    };
    const Shape hidden{rows, context / mesh->size(Axis::cp), source.config().width};
    const Tensor loss = executor.run({forward, hidden, model.dtype()}).loss;
    sync.finish();
    const double total = pipeline::global_loss(*mesh, loss);
    CHECK(std::abs(total - expected.read(what + ".loss").item()) < 1e-5 * total);
    for (const auto& [name, value] : their_values(held_gradients(model), map_of(source.config()), mesh->world())) {
      const double off = relative_difference(value, expected.read(what + ".grads." + name));
      CHECK_MESSAGE(off < 1e-5, what, " on ", mesh_text, ": the gradient of ", name, " is off by ", off);
    }
  });
}

}  // namespace

TEST_CASE("fine-tuning on dialogues has the loss and the gradients of TRL, with and without adapters") {
  for (const std::string mesh : {"dp=1", "tp=2", "dp=2,pp=2"})
    for (const std::string what : {"weights", "adapters"}) check_on_mesh(what, mesh);
}

}  // namespace trl_golden_test
