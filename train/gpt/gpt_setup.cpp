#include "train/gpt/gpt_setup.h"

#include <algorithm>

#include "train/step/setup.h"

namespace trireme {
namespace {

/// Elements that a block keeps per token for its backward. The inputs of two norms (split over tp with sequence
/// parallelism) and their outputs. Split over tp: q and the output of attention, k and v, and the hidden features
/// before and after the activation (of a gated MLP: a third tensor). With experts: the hidden features of the experts
/// that compute a token, and the input and output of each chosen expert. With norms after attention and the MLP: their
/// inputs.
double kept_per_token(const TrainOptions& o, const GptConfig& c, bool experts) {
  const double tp = o.mesh.shape.size(Axis::tp);
  const bool sequence = o.mesh.parallelism().sequence && tp > 1;
  const double width = static_cast<double>(c.width), chosen = static_cast<double>(experts ? c.experts.top_k : 0);
  const double mlps = experts ? chosen + static_cast<double>(c.experts.shared) : 1;
  const double hidden = mlps * static_cast<double>(experts ? c.expert_hidden() : c.hidden()) / tp;
  const auto features = static_cast<double>(c.attention_width());
  const auto kv_width = static_cast<double>(c.head_features() * c.key_value_heads());
  const double kv_ranks = std::min(tp, static_cast<double>(c.key_value_heads()));
  const double stream = sequence ? width / tp : width;
  const double inner = c.gated() ? 3 * hidden : 2 * hidden;
  const double whole = 2 * stream + 2 * width + 2 * features / tp + 2 * kv_width / kv_ranks + inner +
                       2 * chosen * width + (c.post_norms ? 2 * stream : 0);
  using Kind = nn::Recompute::Kind;
  const nn::Recompute recompute = o.precision.recompute_plan();
  if (recompute.kind == Kind::selective) return whole - hidden - 2 * width;
  if (recompute.kind == Kind::blocks) return (stream + (recompute.every - 1) * whole) / recompute.every;
  return whole;
}

/// The same, averaged over blocks with and without experts.
double mean_kept_per_token(const TrainOptions& o, const GptConfig& c) {
  const double mixtures = static_cast<double>(c.mixtures()) / static_cast<double>(c.layers);
  return mixtures * kept_per_token(o, c, true) + (1 - mixtures) * kept_per_token(o, c, false);
}

/// Blocks in a stage of rank 0, averaged over its stages.
double blocks_per_stage(const MeshOptions& mesh, const GptConfig& c) {
  const pipeline::StagePlan plan = gpt_plan(mesh, c);
  const auto ranks = static_cast<std::size_t>(mesh.shape.size(Axis::pp));
  double blocks = 0;
  for (std::size_t stage = 0; stage < plan.size(); stage += ranks) blocks += plan[stage].count;
  return blocks * static_cast<double>(ranks) / static_cast<double>(plan.size());
}

}  // namespace

pipeline::StagePlan gpt_plan(const MeshOptions& mesh, const GptConfig& config) {
  return mesh.stage_plan(static_cast<int>(config.layers), stage_costs(config));
}

std::unique_ptr<Gpt> make_gpt(const TrainOptions& o, const GptConfig& config, std::shared_ptr<const DeviceMesh> mesh,
                              bool to_be_loaded) {
  const nn::Build build = make_build(o, std::move(mesh));
  return std::make_unique<Gpt>(to_be_loaded ? build.to_be_loaded() : build, config, gpt_plan(o.mesh, config));
}

double gpt_activation_bytes(const TrainOptions& o, const GptConfig& c, int live) {
  const double element = static_cast<double>(size_of(o.precision.dtype));
  const double tokens = static_cast<double>(o.batch_sizes().micro_batch * c.context) / o.mesh.shape.size(Axis::cp);
  const double of_blocks = tokens * blocks_per_stage(o.mesh, c) * mean_kept_per_token(o, c) * element * live;
  if (o.mesh.shape.size(Axis::pp) > 1) return of_blocks;
  const double vocab = static_cast<double>(c.vocab) / o.mesh.shape.size(Axis::tp);
  // The logits of one micro-batch, which their gradient overwrites; with a cap, which keeps them, also their gradient.
  return of_blocks + tokens * vocab * element * (c.logit_softcap ? 2 : 1);
}

double gpt_workspace_bytes(const TrainOptions& o, const GptConfig& c) {
  if (o.precision.attention != "cudnn") return 0;
  const double heads = static_cast<double>(c.heads) / o.mesh.shape.size(Axis::tp) / o.mesh.shape.size(Axis::cp);
  const auto context = static_cast<double>(c.context);
  return 2 * static_cast<double>(o.batch_sizes().micro_batch) * heads * context * context;
}

}  // namespace trireme
