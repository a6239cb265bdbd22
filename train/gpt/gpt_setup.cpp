#include "train/gpt/gpt_setup.h"

#include "train/step/setup.h"

namespace trireme {

pipeline::StagePlan gpt_plan(const MeshOptions& mesh, const GptConfig& config) {
  return mesh.stage_plan(static_cast<int>(config.layers), stage_costs(config));
}

std::unique_ptr<Gpt> make_gpt(const TrainOptions& o, const GptConfig& config, std::shared_ptr<const DeviceMesh> mesh,
                              bool to_be_loaded) {
  nn::Build build = make_build(o, std::move(mesh));
  if (to_be_loaded) build = build.to_be_loaded().drawn_on_use(false);  // all weights are there before ZeRO cuts them
  return std::make_unique<Gpt>(build, config, gpt_plan(o.mesh, config));
}

double gpt_workspace_bytes(const TrainOptions& o, const GptConfig& c) {
  if (o.precision.attention != "cudnn") return 0;
  const double heads = static_cast<double>(c.heads) / o.mesh.shape.size(Axis::tp) / o.mesh.shape.size(Axis::cp);
  const auto context = static_cast<double>(c.context);
  return 2 * static_cast<double>(o.batch_sizes().micro_batch) * heads * context * context;
}

}  // namespace trireme
