#include "models/model.h"

#include "autograd/ops.h"
#include "core/error.h"
#include "models/settings.h"
#include "nn/summary.h"

namespace trireme {

Model::Model(const nn::Build& build, pipeline::StagePlan plan) : build_(build), plan_(std::move(plan)) {
  const int ranks = mesh().size(Axis::pp);
  require(!plan_.empty() && stages() % ranks == 0, "model", "a plan of {} stages for {} ranks; expected a multiple",
          stages(), ranks);
}

std::string Model::summary() const { return nn::summary(build_); }

Batch Model::enter(const Batch& batch) {
  run_state().first_sample = batch.sample_ids.front();
  return local_part(batch);
}

Batch Model::local_part(const Batch& batch) {
  if (mesh().size(Axis::cp) > 1)
    fail(ExitCode::usage, "model",
         "a model of the architecture '{}' does not divide its samples over cp, so each rank of {} would count all of "
         "them; expected cp=1; change the mesh (--mesh), or override Model::local_part",
         architecture(), to_string(mesh().shape()));
  Batch local = batch;
  for (auto& [name, tensor] : local.tensors) tensor = tensor.to(device());
  return local;
}

void Model::make_blocks(const std::function<std::unique_ptr<nn::Module>(const nn::Build& block, int index)>& make) {
  const int ranks = mesh().size(Axis::pp);
  for (int stage = mesh().coord(Axis::pp); stage < stages(); stage += ranks) {
    const pipeline::BlockRange& range = plan_[static_cast<std::size_t>(stage)];
    for (int i = range.first; i < range.end(); ++i)
      blocks_.push_back({i, make((build_ / "blocks" / std::to_string(i)).unit(stage / ranks), i)});
  }
}

Tensor Model::hidden(int stage, const Tensor& input, const Batch& batch) {
  const pipeline::BlockRange& range = plan_[static_cast<std::size_t>(stage)];
  Tensor x = stage == 0 ? front(batch) : input;
  const nn::Recompute& recomputation = parallelism().recompute;
  const RepeatCheapInputs scope(recomputation.kind == nn::Recompute::Kind::selective);
  for (const PlacedBlock& block : blocks_) {
    if (!range.contains(block.index)) continue;  // of another stage on this rank
    x = recomputation.of_block(block.index) ? recomputed(*block.module, x) : (*block.module)(x);
  }
  return x;
}

Tensor Model::loss_of(const Batch& batch, double scale) {
  if (mesh().size(Axis::pp) > 1)
    fail(ExitCode::usage, "model",
         "this rank of {} has only some of the stages; expected pp=1; use Trainer, or pipeline::Executor, which passes "
         "results from stage to stage",
         to_string(mesh().shape()));
  const Batch local = enter(batch);
  Tensor x;
  for (int stage = 0; stage < stages(); ++stage) x = hidden(stage, x, local);
  return loss(x, local, scale);
}

Tensor Model::recomputed(nn::Module& block, const Tensor& x) {
  // Dropout masks depend on the numbers of the samples. When backward runs, those of another micro-batch may be set.
  const auto run = build_.run_state();
  return recompute(
      [&block, run, state = *run](const Tensor& input) {
        const nn::RunState current = std::exchange(*run, state);
        const Tensor output = block(input);
        *run = current;
        return output;
      },
      x);
}

std::vector<Model::Setting> Model::settings(const std::string& configuration, const std::string& path) const {
  std::vector<Setting> settings;
  const nlohmann::json fields = parse_json(configuration, path);
  for (const auto& [key, value] : fields.items()) settings.emplace_back(flag_of(key), setting_text(value));
  return settings;
}

}  // namespace trireme
